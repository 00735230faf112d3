"""Playing a race: from a step and a race to a timeline and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.culprits import Culprit, culprit_of
from lab.play.backstage import Backstage
from lab.play.races.race import Race
from lab.play.stage import Stage
from lab.play.timeline import Timeline
from lab.steps.step import Step
from lab.verdict import Verdict


@dataclass(frozen=True)
class Played:
    """A race as it went, and what it has come to."""

    step: Step
    race: Race
    timeline: Timeline
    verdict: Verdict

    @property
    def culprit(self) -> Culprit | None:
        """The line to look at, where something broke."""
        findings = self.verdict.findings
        return culprit_of(self.step, findings[0][0]) if findings else None

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        culprit = self.culprit
        return {
            "step": self.step.name,
            "race": self.race.name,
            **self.timeline.as_dict(),
            "sold": self.verdict.sold,
            "findings": dict(self.verdict.findings),
            "culprit": str(culprit) if culprit else None,
        }


def play(step: Step, race: Race, backstage: Backstage) -> Played:
    """Play a race with a step; whatever becomes of it, nothing of it is left.

    :raises NeverCame: an actor did not come where the race wants it.
    :raises BackstageGone: there are no processes to be had.
    """
    with Stage(step, backstage) as stage:
        race.play(stage)
        return Played(step, race, stage.timeline, stage.judge())
