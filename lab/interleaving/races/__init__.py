"""The named races: which there are, and which of them a step is meant for."""

from __future__ import annotations

from lab.interleaving.races import buying, dying, leases
from lab.interleaving.races.race import Findings, Race
from lab.steps.step import Step

__all__ = ["RACES", "Findings", "Race", "races_of"]

RACES: dict[str, Race] = {race.name: race for race in (*buying.RACES, *dying.RACES, *leases.RACES)}
"""All of them, in the order in which the story is told."""


def races_of(step: Step) -> list[Race]:
    """Return the races that are meant for this step."""
    return [race for race in RACES.values() if step.name in race.expects]
