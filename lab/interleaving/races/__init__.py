"""The named races, in the order of the story."""

import tomllib
from pathlib import Path

from lab.interleaving.races import deaths, leases, presses, queues
from lab.interleaving.races.race import Race
from lab.steps.step import Step

_EXPECTED = tomllib.loads(Path(__file__).with_name("expected.toml").read_text("utf-8"))
_SCRIPTS = presses.SCRIPTS | deaths.SCRIPTS | queues.SCRIPTS | leases.SCRIPTS

RACES = {name: Race(name, _SCRIPTS[name], **expected) for name, expected in _EXPECTED.items()}


def races_of(step: Step) -> list[Race]:
    """Return the races that are meant for this step."""
    return [race for race in RACES.values() if step.name in race.expects]
