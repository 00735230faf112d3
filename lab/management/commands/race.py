"""``manage.py race``: the same crowd for every step, and a verdict on each; or experiments."""

import json
import logging
import os
import signal
import sys
import tomllib
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import DatabaseError, connection
from django.utils import timezone
from redis.exceptions import RedisError

from lab.crowd.back_half import NotStarted
from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault, RedisStaysAway
from lab.crowd.results import Result, add_result
from lab.crowd.stage import CrowdStage, SellerDied
from lab.crowd.tables import headings, line_of, lines_of
from lab.document import is_of_experiments, write_document
from lab.engine.database import has_row_locks
from lab.engine.fork_server import ForkServer, ForkServerGone
from lab.experiments import EXPERIMENTS
from lab.experiments.experiment import Experiment, add_tables, measure
from lab.figures import NoDocument, describe_machine, figures_path
from lab.instances import are_described
from lab.models import LabSale
from lab.steps import STEPS
from lab.verdict import Verdict
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable

OURS_BROKE, COULD_NOT, INTERRUPTED, ENDED = 1, 2, 130, 143

ENDED_EARLY = (SellerDied, NotStarted, ForkServerGone, RedisStaysAway, TimeoutError)
UNAVAILABLE = (RedisError, DatabaseError, LedgerUnavailable)

LIMITS = {"buyers": 100_000, "stock": 100_000, "processes": 16, "threads": 64, "clicks": 5}
MOST_LANES = 200
"""The most database connections that a race may open."""

RESTARTS = "SECKILL_LAB_REDIS_RESTARTS"

HELP = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
NAMES = f"steps: {', '.join(STEPS)}; experiments: {', '.join(EXPERIMENTS)}"


class BadRace(Exception):
    """A race cannot be run with these options or servers; the message says what to do."""


class Command(BaseCommand):
    help = HELP["race"]

    def add_arguments(self, parser: CommandParser) -> None:
        faults = parser.add_mutually_exclusive_group()

        def add(option: str, *, group: Any = parser, **kwargs: Any) -> None:
            group.add_argument(option, help=HELP[option], **kwargs)

        parser.add_argument("names", nargs="*", metavar="NAME", type=_name, help=NAMES)
        add("--experiments", action="store_true")
        for name, most in LIMITS.items():
            default = getattr(Crowd, name)
            text = f"1 to {most:,}, default {default:,}"
            parser.add_argument(f"--{name}", type=_up_to(most), default=default, help=text)
        for fault in (Fault.KILL, Fault.PAUSE, Fault.REDIS_RESTART):
            add(f"--{fault}", group=faults, action="store_true")
        add("--instances", group=faults, type=_up_to(8), metavar="N")
        add("--json", action="store_true")
        add("--document", nargs="+", type=Path, metavar="FILE", default=[])
        add("--rewrite", action="store_true")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        faults = [fault for fault in Fault if options.get(fault.replace("-", "_"))]
        fault = faults[0] if faults else Fault.NONE
        crowd = Crowd(**{name: options[name] for name in LIMITS})
        verdicts: Sequence[Verdict] = ()
        try:
            experiments = check_options(options, crowd, fault)
            documents = options["document"]
            if not options["rewrite"]:
                check_servers()
                documents = [it for it in documents if is_of_experiments(it) == bool(experiments)]
                if experiments:
                    self._measure_all(experiments, documents, as_json=options["json"])
                else:
                    verdicts = self._race_all(documents, crowd, fault, options)
            for document in documents:
                write_document(document)
        except (BadRace, NoDocument) as error:
            raise CommandError(str(error), returncode=COULD_NOT) from error
        except (*ENDED_EARLY, *UNAVAILABLE) as error:
            text = f"{type(error).__name__}: {error}"
            raise CommandError(text, returncode=COULD_NOT) from error
        except KeyboardInterrupt as error:
            text = "interrupted; nothing is left of the race"
            raise CommandError(text, returncode=INTERRUPTED) from error
        if any(it.step == "ours" and not it.is_right for it in verdicts):
            sys.exit(OURS_BROKE)

    def _race_all(
        self, documents: list[Path], crowd: Crowd, fault: Fault, options: dict[str, Any]
    ) -> Sequence[Verdict]:
        """Race the named steps, or all; keep the figures beside these documents."""
        asked = ["ours"] if options["instances"] else options["names"] or STEPS
        steps = [name for name in STEPS if name in asked]
        result = self._race(steps, crowd, fault, as_json=options["json"])
        for document in documents:
            add_result(document, result)
        return result.verdicts

    def _measure_all(
        self, experiments: list[Experiment], documents: list[Path], *, as_json: bool
    ) -> None:
        """Run these experiments; keep the figures beside these documents."""
        out = self.stderr if as_json else self.stdout
        tables = [measure(it, out.write) for it in experiments]
        for document in documents:
            add_tables(document, tables, EXPERIMENTS)
        if as_json:
            self.stdout.write(json.dumps([asdict(it) for it in tables], indent=2))

    def _race(self, steps: list[str], crowd: Crowd, fault: Fault, *, as_json: bool) -> Result:
        """Race these steps and show the progress."""
        # If only the result goes to standard output, the progress goes to standard error.
        out = self.stderr if as_json else self.stdout
        size = f"{crowd.buyers:,} buyers press {crowd.clicks} times each for {crowd.stock:,} units"
        sellers = f"{crowd.processes} processes of {crowd.threads} threads"
        out.write(f"\n{size}, {sellers}; fault: {fault}\n")
        with ExitStack() as stack:
            # Let SIGTERM clean up as Ctrl-C does.
            before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(ENDED))
            stack.callback(signal.signal, signal.SIGTERM, before)
            # Keep the shop's warnings, such as those of an absent Redis, out of the table.
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.WARNING)
            server = stack.enter_context(ForkServer())
            machine, verdicts = describe_machine(), []
            out.write(line_of(headings()))
            for name in steps:
                with CrowdStage(STEPS[name], server, crowd=crowd, fault=fault) as stage:
                    verdicts.append(stage.run())
                for line in lines_of(verdicts[-1], has_fault=fault is not Fault.NONE):
                    out.write(line)
            today = timezone.localdate().isoformat()
            result = Result(crowd, fault, measured_on=today, machine=machine, verdicts=verdicts)
        if as_json:
            self.stdout.write(json.dumps(asdict(result), indent=2))
        return result


def _name(name: str) -> str:
    if name not in {*STEPS, *EXPERIMENTS}:
        raise ArgumentTypeError(f"there is no step or experiment {name}; there are {NAMES}")
    return name


def _up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not 1 <= int(text) <= most:
            raise ArgumentTypeError(f"must be from 1 to {most:,}")
        return int(text)

    return number


def check_options(options: dict[str, Any], crowd: Crowd, fault: Fault) -> list[Experiment]:
    """Check what argparse cannot, and return the requested experiments.

    :raises BadRace: no race can be run with these options.
    :raises NoDocument: a document is not Markdown.
    """
    names = options["names"]
    experiments = [it for it in EXPERIMENTS.values() if it.name in names or options["experiments"]]
    if experiments and (fault is not Fault.NONE or options["instances"] or STEPS.keys() & names):
        raise BadRace("an experiment has no crowd and no fault: run it without steps and faults")
    if options["rewrite"] and not options["document"]:
        raise BadRace("--rewrite wants --document FILE")
    if crowd.lane_count > MOST_LANES:
        text = "each has a connection to the database"
        raise BadRace(f"--processes times --threads must be at most {MOST_LANES}: {text}")
    if fault is Fault.REDIS_RESTART and os.environ.get(RESTARTS) != "true":
        raise BadRace(
            "--redis-restart ends Redis, and loses what it holds: script/race has one for it. "
            f"To end one that something else starts again, set {RESTARTS}=true"
        )
    for document in options["document"]:
        figures_path(document)
    if options["instances"] and (not are_described() or {*names} - {"ours"}):
        raise BadRace("--instances is for ours alone: script/race starts them")
    if options["document"] and names and not experiments:
        raise BadRace("--document wants the whole table: name no steps")
    return experiments


def check_servers() -> None:
    """Check that a race can run on these servers.

    :raises BadRace: the database has no row locks, or lacks the lab's tables.
    :raises redis.RedisError: Redis does not respond.
    """
    if not has_row_locks():
        text = "SQLite lets one writer in at a time, so nothing races there"
        raise BadRace(f"a race wants MariaDB: {text}. Try script/race")
    if LabSale._meta.db_table not in connection.introspection.table_names():
        raise BadRace("the tables are missing: run manage.py migrate")
    ledger_connection().ping()
