"""A named race, and the function that plays it and returns a timeline and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.engine.fork_server import ForkServer, ForkServerGone, ProcessEnded
from lab.interleaving.actors import NeverCame
from lab.interleaving.stage import PlayedStage
from lab.interleaving.timeline import Event, Timeline
from lab.listing import Culprit, culprit_of
from lab.steps.step import Step
from lab.texts import TEXTS
from lab.verdict import Verdict, finding_text

Findings = Mapping[str, int]
Script = Callable[[PlayedStage], None]

PLAY_ERRORS = (ForkServerGone, NeverCame, ProcessEnded)
"""The exceptions of a race that could not be played to its end."""


@dataclass(frozen=True)
class Race:
    """An order of events; ``script`` opens the sale and moves the actors.

    ``breaks`` has the findings for each step that breaks, ``holds`` the steps that hold; both are
    in ``expected.toml``.
    """

    name: str
    script: Script
    breaks: Mapping[str, Findings]
    holds: Sequence[str]

    @property
    def title(self) -> str:
        return str(TEXTS["race"][self.name]["title"])

    @property
    def story(self) -> str:
        return str(TEXTS["race"][self.name]["story"])

    @property
    def expects(self) -> Mapping[str, Findings]:
        """The findings for each step that the race is meant for."""
        return {**self.breaks, **{step: {} for step in self.holds}}


@dataclass(frozen=True)
class Outcome:
    """The timeline of a played race, and the verdict on it."""

    step: Step
    race: Race
    timeline: Timeline
    verdict: Verdict

    @property
    def culprit(self) -> Culprit | None:
        """The line to look at, if something broke."""
        findings = self.verdict.findings
        return culprit_of(self.step, findings[0][0]) if findings else None

    @property
    def flaws(self) -> list[str]:
        """The findings in words."""
        return [finding_text(name, count) for name, count in self.verdict.findings]

    @property
    def events(self) -> list[Event]:
        """The events to show; for ours, without reads."""
        return self.timeline.without_reads() if self.step.is_ours else self.timeline.events

    @property
    def left_out(self) -> int:
        """The number of events that are not shown."""
        return len(self.timeline.events) - len(self.events)


def play(step: Step, race: Race, server: ForkServer) -> Outcome:
    """Play a race with a step, and remove its data and processes afterwards.

    :raises NeverCame: an actor did not reach a point of the race.
    :raises ProcessEnded: a process ended by itself.
    :raises ForkServerGone: the server of the processes has ended.
    """
    with PlayedStage(step, server) as stage:
        race.script(stage)
        return Outcome(step, race, stage.timeline, stage.judge())
