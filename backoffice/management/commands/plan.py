"""``manage.py plan``: how many machines, processes and servers an evening needs."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backoffice.capacity.figures import FILE, MEASURE, BadFigures, NoFigures, read_figures
from backoffice.capacity.planning import Evening, Plan
from backoffice.capacity.texts import tables

MOST = 1_000_000_000


class Command(BaseCommand):
    help = (
        f"Say how many machines, processes and servers an evening needs, by the figures that "
        f"{MEASURE} measured, and whether one Redis and one writer are enough for it. "
        "docs/capacity.md explains the plan, and what it does not know."
    )
    requires_system_checks = []  # it uses no server
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--buyers", type=int, required=True, help="who press at the start")
        parser.add_argument("--units", type=int, required=True, help="on sale")
        parser.add_argument("--pages", type=int, required=True, help="page loads before the start")
        parser.add_argument(
            "--sign-ins", type=int, default=0, help="with a password before the start (default 0)"
        )
        parser.add_argument(
            "--before", type=int, default=60, help="seconds for pages and sign-ins (default 60)"
        )
        parser.add_argument(
            "--within", type=int, default=10, help="seconds in which all buyers press (default 10)"
        )
        parser.add_argument("--cores", type=int, help="of a machine (default: as measured)")
        parser.add_argument(
            "--figures", type=Path, default=FILE, help="file (default .run/capacity.json)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("buyers", "units", "before", "within", "cores"):
            _check(options, name, least=1)
        for name in ("pages", "sign_ins"):
            _check(options, name, least=0)
        try:
            figures = read_figures(options["figures"])
        except (NoFigures, BadFigures) as error:
            raise CommandError(str(error)) from error
        evening = Evening(
            buyers=options["buyers"],
            units=options["units"],
            pages=options["pages"],
            sign_ins=options["sign_ins"],
            before_s=options["before"],
            press_s=options["within"],
        )
        for table in tables(Plan(figures, evening, options["cores"] or figures.cores)):
            self.stdout.write(table.title)
            for figure in table.figures:
                self.stdout.write(f"  {figure.label:<52}{figure.shown:>18}")
        self.stdout.write(f"By the figures of {figures.measured_on}: {figures.machine}.")


def _check(options: dict[str, Any], name: str, *, least: int) -> None:
    value = options[name]
    if value is not None and not least <= value <= MOST:
        option = f"--{name.replace('_', '-')}"
        raise CommandError(f"{option} is {value}: give a number from {least:,} to {MOST:,}")
