"""``manage.py interleave``: play a race of the lab and show its timelines side by side."""

import logging
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations

from lab.engine.database import has_row_locks
from lab.engine.fork_server import ForkServer
from lab.interleaving.races import RACES, races_of
from lab.interleaving.races.race import PLAY_ERRORS, Outcome, play
from lab.interleaving.timeline import side_by_side
from lab.steps import STEPS

OURS_BROKE, COULD_NOT = 1, 2
DEFAULT_WIDTH, WIDEST = 100, 160
INDENT = " " * 15

NEEDS_MARIADB = (
    "the races need row locks, which SQLite does not have: set DATABASE_URL to a MariaDB, such as "
    "that of script/server --mysql"
)


class Command(BaseCommand):
    help = (
        "Play a named race with one of the six steps, and show who did what and when, side by "
        "side. Without arguments, list the steps and their races. The exit status is 0 whatever a "
        "step of the course does; 1 if ours broke; 2 if there is no such step or race, or it could "
        "not be played."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("step", nargs="?", metavar="STEP", choices=STEPS)
        parser.add_argument("race", nargs="?", metavar="RACE", choices=RACES)
        parser.add_argument("--all", action="store_true", help="with ours: show reads, too")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        if options["step"] is None:
            self.stdout.write(_overview())
            return
        step, race = STEPS[options["step"]], RACES.get(options["race"])
        if race is None or step.name not in race.expects:
            names = ", ".join(it.name for it in races_of(step))
            raise CommandError(f"the races for {step.name} are: {names}", returncode=COULD_NOT)
        if not has_row_locks():
            raise CommandError(NEEDS_MARIADB, returncode=COULD_NOT)
        try:
            with _quiet(logging.getLogger("vouchers")), ForkServer() as server:
                outcome = play(step, race, server)
        except PLAY_ERRORS as error:
            text = f"{race.name} could not be played with {step.name}: {error}"
            raise CommandError(text, returncode=COULD_NOT) from error
        self.stdout.write(_text(outcome, with_reads=options["all"]))
        if step.is_ours and not outcome.verdict.is_right:
            sys.exit(OURS_BROKE)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Creating a sale of ours is logged; the terminal is for the timeline."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _overview() -> str:
    lines = ["manage.py interleave STEP RACE", ""]
    for step in STEPS.values():
        lines.append(f"{step.name:<{len(INDENT)}}{step.title}")
        names = "  ".join(race.name for race in races_of(step))
        wrapped = textwrap.wrap(names, _width() - len(INDENT), break_on_hyphens=False)
        lines += [f"{INDENT}{line}" for line in wrapped]
    return "\n".join(lines)


def _text(outcome: Outcome, *, with_reads: bool) -> str:
    step, race, timeline = outcome.step, outcome.race, outcome.timeline
    events = timeline.events if with_reads else outcome.events
    left_out = len(timeline.events) - len(events)
    parts = [
        f"{race.title}, with {step.name}: {step.title}",
        textwrap.fill(race.story, min(_width(), DEFAULT_WIDTH)),
        side_by_side(timeline, events, width=_width()),
    ]
    if left_out:
        parts.append(f"{left_out} checks of database and ledger are left out: see --all.")
    return "\n\n".join([*parts, _summary(outcome)])


def _summary(outcome: Outcome) -> str:
    """Return the verdict in one line, with the line of code to look at."""
    verdict, culprit = outcome.verdict, outcome.culprit
    if verdict.is_right:
        return f"Right: {verdict.sold} of {verdict.offered} sold, and every promise was kept."
    look = f" Look at {culprit}: {culprit.code}" if culprit else ""
    return f"Broken: {'; '.join(outcome.flaws)}.{look}"


def _width() -> int:
    return min(shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns, WIDEST)
