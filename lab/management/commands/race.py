"""``manage.py race``: the same crowd for every step, and what each of them made of it."""

from __future__ import annotations

import json
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from django.db import DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from lab.crowds.asked import LIMITS, Asked, BadRace, check_servers
from lab.crowds.back_half import NotStarted
from lab.crowds.crowd import Crowd
from lab.crowds.faults import Fault, RedisStaysAway
from lab.crowds.machine import describe_machine
from lab.crowds.plain_table import PlainTable
from lab.crowds.results import NoDocument, Result, add_result
from lab.crowds.selling import Sale
from lab.crowds.staff import SellerDied
from lab.steps import STEPS
from lab.story.document import write_document
from lab.verdict import Verdict
from vouchers.inventory.keys import LedgerUnavailable

HAS_RICH = find_spec("rich") is not None
if HAS_RICH:  # it is for who looks on, and not among what the shop needs
    from lab.crowds.live_table import LiveTable

OURS_BROKE, COULD_NOT, INTERRUPTED, ENDED = 1, 2, 130, 143

AWAY = (RedisError, DatabaseError, LedgerUnavailable)
TROUBLES = (SellerDied, NotStarted, RedisStaysAway, TimeoutError, *AWAY)


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
        crowd = Crowd()
        for name in LIMITS:
            default = getattr(crowd, name)
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
        try:
            asked = Asked.of(options)
            if options["rewrite"]:
                _write(asked.documents)
                return
            check_servers()
            result = self._race(asked, as_json=options["json"])
            for document in asked.documents:
                add_result(document, result)
            _write(asked.documents)
        except (BadRace, NoDocument) as error:
            raise CommandError(str(error), returncode=COULD_NOT) from error
        except TROUBLES as error:
            text = f"{type(error).__name__}: {error}"
            raise CommandError(text, returncode=COULD_NOT) from error
        except KeyboardInterrupt as error:
            text = "interrupted; nothing is left of the race"
            raise CommandError(text, returncode=INTERRUPTED) from error
        if any(it.step == "ours" and not it.is_right for it in result.verdicts):
            sys.exit(OURS_BROKE)

    def _race(self, asked: Asked, *, as_json: bool) -> Result:
        """Race all steps that are asked for, and show what comes."""
        # Where the result alone goes to standard output, the race is shown on the other.
        out = self.stderr if as_json else self.stdout
        out.write(_title(asked.crowd, asked.fault))
        with _asked_to_end(), _quiet_log(), _table(asked, out, stderr=as_json) as table:
            result = Result(
                crowd=asked.crowd,
                fault=asked.fault,
                measured_on=timezone.localdate().isoformat(),
                machine=describe_machine(),
                verdicts=list(_verdicts(asked, table)),
            )
        if as_json:
            self.stdout.write(json.dumps(result.as_json(), indent=2))
        return result


def _verdicts(asked: Asked, table: LiveTable | PlainTable) -> Iterator[Verdict]:
    for name in asked.steps:
        with tempfile.TemporaryDirectory(prefix="seckill-race-") as directory:
            sale = Sale(
                STEPS[name], crowd=asked.crowd, fault=asked.fault, directory=Path(directory)
            )
            verdict = sale.run(table.watch)
        table.show(verdict)
        yield verdict


def _table(asked: Asked, out: OutputWrapper, *, stderr: bool) -> LiveTable | PlainTable:
    struck = asked.fault is not Fault.NONE
    if HAS_RICH and out.isatty():
        return LiveTable(asked.steps, stderr=stderr, struck=struck)
    return PlainTable(out.write, struck=struck)


def _title(crowd: Crowd, fault: Fault) -> str:
    size = f"{crowd.buyers:,} buyers press {crowd.clicks} times each for {crowd.stock:,} units"
    sellers = f"{crowd.processes} processes of {crowd.threads} threads"
    return f"\n{size}, {sellers}; fault: {fault}\n"


def _write(documents: Sequence[Path]) -> None:
    for document in documents:
        write_document(document)


# --- While it runs --------------------------------------------------------------------------------


@contextmanager
def _asked_to_end() -> Iterator[None]:
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
    """Keep what the shop logs, as of a Redis that is away, out of the table."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
