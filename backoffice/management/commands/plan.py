"""``manage.py plan``: how many machines, processes and servers an evening needs."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backoffice.capacity.figures import (
    DOCUMENTED,
    FILE,
    MEASURE,
    BadFigures,
    NoFigures,
    read_figures,
)
from backoffice.capacity.planning import Evening, Plan
from backoffice.capacity.texts import tables
from backoffice.management.numbers import between

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
        some, any_number = between(1, MOST), between(0, MOST)
        parser.add_argument("--buyers", type=some, required=True, help="who press at the start")
        parser.add_argument("--units", type=some, required=True, help="on sale")
        text = "page loads before the start"
        parser.add_argument("--pages", type=any_number, required=True, help=text)
        text = "with a password before the start (default 0)"
        parser.add_argument("--sign-ins", type=any_number, default=0, help=text)
        text = "seconds for pages and sign-ins (default 60)"
        parser.add_argument("--before", type=some, default=60, help=text)
        text = "seconds in which all buyers press (default 10)"
        parser.add_argument("--within", type=some, default=10, help=text)
        parser.add_argument("--cores", type=some, help="of a machine (default: as measured)")
        text = "file (default: .run/capacity.json if it exists, else what docs/capacity.md shows)"
        default = FILE if os.access(FILE, os.R_OK) else DOCUMENTED
        parser.add_argument("--figures", type=Path, default=default, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
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
