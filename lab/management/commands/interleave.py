"""``manage.py interleave``: a race of the lab, played, as timelines side by side."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import textwrap
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import connection

from lab.notes import words_of
from lab.play.actors import NeverCame
from lab.play.backstage import Backstage, BackstageGone
from lab.play.playing import Played, play
from lab.play.races import RACES, Race, races_of
from lab.play.side_by_side import side_by_side
from lab.steps import STEPS
from lab.steps.step import Step

OURS_BROKE, COULD_NOT = 1, 2
PLAYED_ON = "mysql"
DEFAULT_WIDTH, WIDEST = 100, 160

NEEDS_MARIADB = (
    "the races turn on row locks, which SQLite has not: set DATABASE_URL to a MariaDB, or use what "
    "script/server --mysql has started"
)


class Command(BaseCommand):
    help = (
        "Play a named race with one of the six steps, and show who did what and when, side by "
        "side. Without arguments, list the steps and their races. The exit status is 0 whatever a "
        "step of the course does; 1 where ours broke; 2 where there is no such step or race, or it "
        "could not be played."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("step", nargs="?", metavar="STEP")
        parser.add_argument("race", nargs="?", metavar="RACE")
        parser.add_argument("--all", action="store_true", help="with ours: what it only reads, too")
        parser.add_argument("--json", action="store_true", help="all events, as one object")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        if options["step"] is None:
            self.stdout.write(_list_of_all())
            return
        step, race = _chosen(options["step"], options["race"])
        if connection.vendor != PLAYED_ON:
            raise CommandError(NEEDS_MARIADB, returncode=COULD_NOT)
        # Making a sale of ours is logged; the terminal is for the timeline.
        logging.getLogger("vouchers").setLevel(logging.WARNING)
        try:
            with Backstage(database=str(connection.settings_dict["NAME"])) as backstage:
                played = play(step, race, backstage)
        except (BackstageGone, NeverCame) as error:
            text = f"{race.name} could not be played with {step.name}: {error}"
            raise CommandError(text, returncode=COULD_NOT) from error
        if options["json"]:
            self.stdout.write(json.dumps(played.as_dict(), indent=2, ensure_ascii=False))
        else:
            self.stdout.write(_in_full(played, with_reads=options["all"]))
        if step.name == "ours" and not played.verdict.is_right:
            sys.exit(OURS_BROKE)


def _chosen(step_name: str, race_name: str | None) -> tuple[Step, Race]:
    if step_name not in STEPS:
        text = f"there is no step {step_name!r}. There are: {', '.join(STEPS)}"
        raise CommandError(text, returncode=COULD_NOT)
    step = STEPS[step_name]
    its = ", ".join(race.name for race in races_of(step))
    if race_name is None:
        raise CommandError(f"which race? {step_name} has: {its}", returncode=COULD_NOT)
    if race_name not in RACES:
        text = f"there is no race {race_name!r}. {step_name} has: {its}"
        raise CommandError(text, returncode=COULD_NOT)
    if step_name not in RACES[race_name].expects:
        text = f"{race_name} is not meant for {step_name}, which has: {its}"
        raise CommandError(text, returncode=COULD_NOT)
    return step, RACES[race_name]


def _list_of_all() -> str:
    lines = ["manage.py interleave STEP RACE", ""]
    for step in STEPS.values():
        lines.append(f"{step.name:<15}{step.title}")
        lines += textwrap.wrap(
            "  ".join(race.name for race in races_of(step)),
            _width() - 15,
            initial_indent=" " * 15,
            subsequent_indent=" " * 15,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _in_full(played: Played, *, with_reads: bool) -> str:
    step, race, timeline = played.step, played.race, played.timeline
    ours = step.name == "ours"
    events = timeline.without_reads() if ours and not with_reads else timeline.events
    left_out = len(timeline.events) - len(events)
    parts = [
        f"{race.title}, with {step.name}: {step.title}",
        textwrap.fill(str(race.story), min(_width(), DEFAULT_WIDTH)),
        side_by_side(timeline, events, width=_width()),
    ]
    if left_out:
        parts.append(f"{left_out} looks at database and ledger are left out: see --all.")
    return "\n\n".join([*parts, _verdict(played)])


def _verdict(played: Played) -> str:
    """Return what it has come to, in one line, with the line to look at."""
    verdict = played.verdict
    if verdict.is_right:
        return f"Right: {verdict.sold} sold of {verdict.offered}, and nobody's promise was broken."
    broke = "; ".join(words_of(name, count) for name, count in verdict.findings)
    culprit = played.culprit
    look = f" Look at {culprit}: {culprit.code}" if culprit else ""
    return f"Broken: {broke}.{look}"


def _width() -> int:
    return min(shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns, WIDEST)
