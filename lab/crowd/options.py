"""The options of a crowd race, checked before anything is started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.crowd.results import figures_path
from lab.steps import STEPS

LIMITS = {
    "buyers": 100_000,
    "stock": 100_000,
    "processes": 16,
    "threads": 64,
    "clicks": 5,
}
MOST_LANES = 200
"""Most connections to the database that a race may open."""

RESTARTS = "SECKILL_LAB_REDIS_RESTARTS"


class BadRace(Exception):
    """A race cannot be run with these options; the text says what to do."""


@dataclass(frozen=True)
class RaceOptions:
    """The steps by name, in the order of the story, and what to do with them."""

    steps: tuple[str, ...]
    crowd: Crowd
    fault: Fault
    documents: tuple[Path, ...]

    @classmethod
    def parse(cls, options: dict[str, Any]) -> Self:
        """Read the options of the command.

        :raises BadRace: they make no race.
        :raises NoDocument: a document is none.
        """
        if options["rewrite"] and not options["document"]:
            raise BadRace("--rewrite wants --document FILE")
        parsed = cls(
            steps=_steps(options["steps"]),
            crowd=_crowd(options),
            fault=_fault(options),
            documents=tuple(options["document"]),
        )
        for document in parsed.documents:
            figures_path(document)
        if parsed.documents and len(parsed.steps) < len(STEPS):
            raise BadRace("--document wants the whole table: name no steps")
        return parsed


def _steps(named: list[str]) -> tuple[str, ...]:
    for name in named:
        if name not in STEPS:
            raise BadRace(f"there is no step {name}; there are: {', '.join(STEPS)}")
    return tuple(name for name in STEPS if name in named or not named)


def _crowd(options: dict[str, Any]) -> Crowd:
    for name, most in LIMITS.items():
        if not 1 <= options[name] <= most:
            raise BadRace(f"--{name} must be from 1 to {most:,}")
    crowd = Crowd(**{name: options[name] for name in LIMITS})
    if crowd.lane_count > MOST_LANES:
        text = "each has a connection to the database"
        raise BadRace(f"--processes times --threads must be at most {MOST_LANES}: {text}")
    return crowd


def _fault(options: dict[str, Any]) -> Fault:
    faults = [fault for fault in Fault if options.get(fault.replace("-", "_"))]
    if Fault.REDIS_RESTART in faults and os.environ.get(RESTARTS) != "true":
        raise BadRace(
            "--redis-restart ends Redis, and loses what it holds: script/race has one for it. "
            f"To end one that something else starts again, set {RESTARTS}=true"
        )
    return faults[0] if faults else Fault.NONE
