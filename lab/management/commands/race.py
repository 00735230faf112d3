"""``manage.py race``: the same crowd for every step, and a verdict on each of them."""

from __future__ import annotations

import json
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    OutputWrapper,
    no_translations,
)
from django.db import DatabaseError, connection
from django.utils import timezone
from redis.exceptions import RedisError

from lab.crowd.back_half import NotStarted
from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault, RedisStaysAway
from lab.crowd.machine import describe_machine
from lab.crowd.options import BadRace, RaceOptions
from lab.crowd.results import NoDocument, Result, add_result
from lab.crowd.stage import CrowdStage, SellerDied
from lab.crowd.tables import PlainTable
from lab.document import write_document
from lab.engine.database import has_row_locks
from lab.engine.fork_server import ForkServer, ForkServerGone
from lab.models import LabSale
from lab.steps import STEPS
from lab.verdict import Verdict
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable

HAS_RICH = find_spec("rich") is not None
if HAS_RICH:  # for people who watch; the shop does not need it
    from lab.crowd.live_table import LiveTable

OURS_BROKE, COULD_NOT, INTERRUPTED, ENDED = 1, 2, 130, 143

AWAY = (RedisError, DatabaseError, LedgerUnavailable)
TROUBLES = (SellerDied, NotStarted, ForkServerGone, RedisStaysAway, TimeoutError, *AWAY)


class Command(BaseCommand):
    help = (
        "Let the same crowd buy from each step of the classic course project, and from this shop, "
        "and say what was oversold, doubled, lost or left over, how fast it was, and which line of "
        "the step is to blame. What it made is removed again, but for the accounts of the buyers "
        "of ours (lab:1, lab:2 …). Exit status 0 where all ran, whatever broke, but 1 where "
        "ours broke; 2 where it could not be run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}")
        for name, default in asdict(Crowd()).items():
            parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
        faults = parser.add_mutually_exclusive_group()
        faults.add_argument("--kill", action="store_true", help="kill a process in mid-sale")
        faults.add_argument(
            "--pause", action="store_true", help="let one stand still for longer than a lease"
        )
        faults.add_argument(
            "--redis-restart",
            action="store_true",
            help="end Redis in mid-sale; script/race starts it again, empty",
        )
        parser.add_argument("--json", action="store_true", help="the result as one object")
        parser.add_argument(
            "--document",
            nargs="+",
            type=Path,
            metavar="FILE",
            default=[],
            help="put the table into these documents; their figures stand beside them as JSON",
        )
        parser.add_argument(
            "--rewrite", action="store_true", help="only write the documents again, from the same"
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        verdicts: list[Verdict] = []
        try:
            race = RaceOptions.parse(options)
            if not options["rewrite"]:
                check_servers()
                result = self._race(race, as_json=options["json"])
                verdicts += result.verdicts
                for document in race.documents:
                    add_result(document, result)
            for document in race.documents:
                write_document(document)
        except (BadRace, NoDocument) as error:
            raise CommandError(str(error), returncode=COULD_NOT) from error
        except TROUBLES as error:
            text = f"{type(error).__name__}: {error}"
            raise CommandError(text, returncode=COULD_NOT) from error
        except KeyboardInterrupt as error:
            text = "interrupted; nothing is left of the race"
            raise CommandError(text, returncode=INTERRUPTED) from error
        if any(it.step == "ours" and not it.is_right for it in verdicts):
            sys.exit(OURS_BROKE)

    def _race(self, race: RaceOptions, *, as_json: bool) -> Result:
        """Race all steps of the options, and show the progress."""
        # If the result alone goes to standard output, the race is shown on the other.
        out = self.stderr if as_json else self.stdout
        out.write(_title(race.crowd, race.fault))
        with (
            _sigterm_as_exit(),
            _quiet_log(),
            _table(race, out, stderr=as_json) as table,
            ForkServer() as server,
        ):
            result = Result(
                crowd=race.crowd,
                fault=race.fault,
                measured_on=timezone.localdate().isoformat(),
                machine=describe_machine(),
                verdicts=list(_verdicts(race, table, server)),
            )
        if as_json:
            self.stdout.write(json.dumps(asdict(result), indent=2))
        return result


def check_servers() -> None:
    """Check that a race can run on these servers.

    :raises BadRace: the database has no row locks, or not the lab's tables.
    :raises redis.RedisError: Redis does not answer.
    """
    if not has_row_locks():
        text = "SQLite lets one writer in at a time, so nothing races there"
        raise BadRace(f"a race wants MariaDB or MySQL: {text}. Try script/race")
    if LabSale._meta.db_table not in connection.introspection.table_names():
        raise BadRace("the tables are missing: run manage.py migrate")
    ledger_connection().ping()


def _verdicts(
    race: RaceOptions, table: LiveTable | PlainTable, server: ForkServer
) -> Iterator[Verdict]:
    for name in race.steps:
        with (
            tempfile.TemporaryDirectory(prefix="seckill-race-") as directory,
            CrowdStage(
                STEPS[name], server, crowd=race.crowd, fault=race.fault, directory=Path(directory)
            ) as stage,
        ):
            verdict = stage.run(table.watch)
        table.show(verdict)
        yield verdict


def _table(race: RaceOptions, out: OutputWrapper, *, stderr: bool) -> LiveTable | PlainTable:
    has_fault = race.fault is not Fault.NONE
    if HAS_RICH and out.isatty():
        return LiveTable(race.steps, stderr=stderr, has_fault=has_fault)
    return PlainTable(out.write, has_fault=has_fault)


def _title(crowd: Crowd, fault: Fault) -> str:
    size = f"{crowd.buyers:,} buyers press {crowd.clicks} times each for {crowd.stock:,} units"
    sellers = f"{crowd.processes} processes of {crowd.threads} threads"
    return f"\n{size}, {sellers}; fault: {fault}\n"


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM clear up as Ctrl-C does."""

    def end(_signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(ENDED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Keep the shop's warnings, as of a Redis that is away, out of the table."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
