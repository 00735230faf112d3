"""The named races, in the order of the story."""

from lab.interleaving.races import deaths, leases, presses, queues
from lab.interleaving.races.race import Race
from lab.steps.step import Step

RACES: dict[str, Race] = {
    race.name: race for race in (*presses.RACES, *deaths.RACES, *queues.RACES, *leases.RACES)
}


def races_of(step: Step) -> list[Race]:
    """Return the races that are meant for this step."""
    return [race for race in RACES.values() if step.name in race.expects]
