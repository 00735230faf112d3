"""What a race is asked for: checked before anything is started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from django.db import connection

from lab.crowds.crowd import Crowd
from lab.crowds.faults import Fault
from lab.crowds.results import figures_of
from lab.models import LabSale
from lab.steps import STEPS
from seckill_site.ledger_connection import ledger_connection

LIMITS = {
    "buyers": 100_000,
    "stock": 100_000,
    "processes": 16,
    "threads": 64,
    "clicks": 5,
}
MOST_LANES = 200
"""So many connections to the database a race may open."""

RESTARTS = "SECKILL_LAB_REDIS_RESTARTS"


class BadRace(Exception):
    """What was asked for cannot be raced; the text says what to do."""


@dataclass(frozen=True)
class Asked:
    """The steps by name, in the order of the story, and what is done with them."""

    steps: tuple[str, ...]
    crowd: Crowd
    fault: Fault
    documents: tuple[Path, ...]

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Read the options of the command.

        :raises BadRace: they make no race.
        :raises NoDocument: a document is none.
        """
        if options["rewrite"] and not options["document"]:
            raise BadRace("--rewrite wants --document FILE")
        asked = cls(
            steps=_steps(options["steps"]),
            crowd=_crowd(options),
            fault=_fault(options),
            documents=tuple(options["document"]),
        )
        for document in asked.documents:
            figures_of(document)
        if asked.documents and len(asked.steps) < len(STEPS):
            raise BadRace("--document wants the whole table: name no steps")
        return asked


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
    if crowd.processes * crowd.threads > MOST_LANES:
        text = "each has a connection to the database"
        raise BadRace(f"--processes times --threads must be at most {MOST_LANES}: {text}")
    return crowd


def _fault(options: dict[str, Any]) -> Fault:
    asked = [fault for fault in Fault if options.get(fault.replace("-", "_"))]
    if len(asked) > 1:
        raise BadRace(f"one fault a race, not --{' and --'.join(asked)}")
    if Fault.REDIS_RESTART in asked and os.environ.get(RESTARTS) != "true":
        raise BadRace(
            "--redis-restart ends Redis, and loses what it holds: script/race has one for it. "
            f"To end one that something else starts again, set {RESTARTS}=true"
        )
    return asked[0] if asked else Fault.NONE


def check_servers() -> None:
    """Refuse what no race can run on.

    :raises BadRace: the database has no row locks, or not the lab's tables.
    :raises redis.RedisError: Redis does not answer.
    """
    if not connection.features.has_select_for_update:
        text = "SQLite lets one writer in at a time, so nothing races there"
        raise BadRace(f"a race wants MariaDB or MySQL: {text}. Try script/race")
    if LabSale._meta.db_table not in connection.introspection.table_names():
        raise BadRace("the tables are missing: run manage.py migrate")
    ledger_connection().ping()
