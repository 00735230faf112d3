"""An experiment: a measurement beside the six steps, with its table and its story.

Its story is the template ``lab/experiments/NAME.txt``: paragraphs with ``**bold**`` words, code in
backticks and links. Its figures are in ``docs/around-the-six-steps.json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import escape, linebreaks
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

from lab.figures import describe_machine, figures_path, read_figures, write_figures
from lab.texts import TEXTS

Cell = str | float | None
"""A text (English, and translated where it is shown), a figure, or nothing."""

Row = Sequence[Cell]
"""The name of what was measured, then a cell for each further heading."""

MARKUP = {r"\[(.+?)\]\(.+?\)": r"\1", r"\*\*(.+?)\*\*": r"<b>\1</b>", "`(.+?)`": r"<code>\1</code>"}
ONE_DECIMAL_BELOW = 100


@dataclass(frozen=True)
class Experiment:
    """A measurement that yields rows with a cell for each of the columns in ``texts.toml``.

    ``measured_by`` is the path of its function, which is imported when it runs.
    """

    name: str
    measured_by: str

    @property
    def title(self) -> str:
        return str(TEXTS["experiment"][self.name]["title"])

    def headings(self) -> list[str]:
        return str(TEXTS["experiment"][self.name]["columns"]).split("|")

    def story(self) -> str:
        return render_to_string(f"lab/experiments/{self.name}.txt").strip()

    def story_as_html(self) -> SafeString:
        html = linebreaks(escape(self.story()))
        for pattern, replacement in MARKUP.items():
            html = re.sub(pattern, replacement, html)
        return mark_safe(html)


@dataclass(frozen=True)
class Table:
    """The rows of an experiment; ``measured_on`` is a date, ``machine`` a line of text."""

    experiment: str
    measured_on: str
    machine: str
    rows: Sequence[Row]

    def cells(self) -> list[list[str]]:
        return [[text_of(cell) for cell in row] for row in self.rows]


def text_of(cell: Cell) -> str:
    """Return a cell as it is shown, in the current language."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return gettext(cell)
    decimals = isinstance(cell, float) and cell < ONE_DECIMAL_BELOW
    return f"{cell:,.{int(decimals)}f}"


def measure(experiment: Experiment, write: Callable[[str], object]) -> Table:
    """Run an experiment and write its table."""
    write(f"\n{experiment.name}: {experiment.title}")
    rows = [
        [round(cell, 2) if isinstance(cell, float) else cell for cell in row]
        for row in import_string(experiment.measured_by)()
    ]
    table = Table(experiment.name, timezone.localdate().isoformat(), describe_machine(), rows)
    lines = [experiment.headings(), *table.cells()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        write("  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]))
    return table


def read_tables(path: Path) -> dict[str, Table]:
    """Return the tables of a file by the names of their experiments."""
    return {it["experiment"]: Table(**it) for it in read_figures(path)}


def add_tables(document: Path, tables: Iterable[Table], order: Iterable[str]) -> None:
    """Add tables, in place of the last of their experiments, in the order of these names.

    :raises NoDocument: the document is not Markdown.
    """
    path = figures_path(document)
    by_name = read_tables(path) | {table.experiment: table for table in tables}
    write_figures(path, [by_name[name] for name in order if name in by_name])
