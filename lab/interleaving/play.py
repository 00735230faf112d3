"""Play a race: from a step and a race to a timeline and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.engine.fork_server import ForkServer
from lab.interleaving.races.race import Race
from lab.interleaving.stage import PlayedStage
from lab.interleaving.timeline import Event, Timeline
from lab.listing import Culprit, culprit_of
from lab.notes import words_of
from lab.steps.step import Step
from lab.verdict import Verdict


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
        """What broke, in words."""
        return [words_of(name, count) for name, count in self.verdict.findings]

    @property
    def events(self) -> list[Event]:
        """The events to show: of ours, those that are more than a look at something."""
        return self.timeline.without_reads() if self.step.is_ours else self.timeline.events

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "step": self.step.name,
            "race": self.race.name,
            **self.timeline.as_dict(),
            "sold": self.verdict.sold,
            "findings": dict(self.verdict.findings),
            "culprit": str(self.culprit) if self.culprit else None,
        }


def play(step: Step, race: Race, server: ForkServer) -> Outcome:
    """Play a race with a step, and leave nothing of it.

    :raises NeverCame: an actor did not come where the race wants it.
    :raises ForkServerGone: there are no processes.
    """
    with PlayedStage(step, server) as stage:
        race.play(stage)
        return Outcome(step, race, stage.timeline, stage.judge())
