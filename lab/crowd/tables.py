"""The table of a crowd race, live on a terminal or as lines for a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

from django.core.management.base import OutputWrapper
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from lab.listing import culprit_of
from lab.steps import STEPS
from lab.verdict import Verdict, finding_text

HAS_RICH = find_spec("rich") is not None
if HAS_RICH:  # for terminals; the shop does not need it
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

COLUMNS = {
    "step": gettext_noop("step"),
    "sold": gettext_noop("sold"),
    "oversold": gettext_noop("oversold"),
    "doubled": gettext_noop("doubled"),
    "lost": gettext_noop("lost"),
    "undersold": gettext_noop("undersold"),
    "turned_away": gettext_noop("turned away"),
    "stuck": gettext_noop("stuck"),
    "unanswered": gettext_noop("no answer"),
    "orders_per_s": gettext_noop("orders/s"),
    "p99_ms": gettext_noop("p99 ms"),
}
"""The fields of a verdict that the table shows, with their headings."""

FINDINGS = slice(1, 7)
"""The columns after the step's own; any value but 0 is a flaw."""

FORMATS = {"step": "", "orders_per_s": ",.0f", "p99_ms": ",.1f"}
STEP_WIDTH = 14
GAP = 2
BAR_WIDTH = 10
PER_SECOND = 8


def headings() -> list[str]:
    return [_(heading) for heading in COLUMNS.values()]


def cells_of(verdict: Verdict) -> list[str]:
    """Return the cells of a verdict."""
    values = {name: getattr(verdict, name) for name in COLUMNS}
    return [
        "–" if value is None else format(value, FORMATS.get(name, ","))
        for name, value in values.items()
    ]


def notes_on(verdict: Verdict, *, has_fault: bool) -> Iterator[str]:
    """Return a line for each finding, with its line of code, then other remarks.

    ``has_fault`` says whether a fault was requested.
    """
    for finding, count in verdict.findings:
        culprit = culprit_of(STEPS[verdict.step], finding)
        yield f"{finding_text(finding, count)}: {culprit or '–'}"
    if verdict.told_lost:
        yield finding_text("told_lost", verdict.told_lost)
    if not verdict.is_quiet:
        yield _("it did not finish in time")
    if has_fault and not verdict.struck:
        yield _("the fault did not happen: the sale ended first")
    if verdict.error and verdict.unanswered:
        yield _("most of the missing answers were: %(error)s") % {"error": verdict.error}


def table_on(
    out: OutputWrapper, steps: Sequence[str], *, is_stderr: bool, has_fault: bool
) -> LiveTable | PlainTable:
    """Return a live table for a terminal, else a plain one."""
    if HAS_RICH and out.isatty():
        return LiveTable(steps, stderr=is_stderr, has_fault=has_fault)
    return PlainTable(out.write, has_fault=has_fault)


class PlainTable:
    """A table for a log: a line for each step when it is done."""

    def __init__(self, write: Callable[[str], object], *, has_fault: bool) -> None:
        self._write = write
        self._has_fault = has_fault

    def __enter__(self) -> PlainTable:
        self._write(_line(headings()))
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the lines as they are."""

    def watch(self, step: str, share: float, sold: int) -> None:
        """Show nothing: a log needs no bars."""

    def show(self, verdict: Verdict) -> None:
        self._write(_line(cells_of(verdict)))
        for note in notes_on(verdict, has_fault=self._has_fault):
            self._write(f"{'':{STEP_WIDTH}}{note}")


def _line(cells: list[str]) -> str:
    step, *others = cells
    widths = [len(heading) + GAP for heading in headings()[1:]]
    columns = (cell.rjust(width) for cell, width in zip(others, widths, strict=True))
    return f"{step:{STEP_WIDTH}}{''.join(columns)}"


class LiveTable:
    """A table on a terminal that fills during the race: a line and a bar for each step."""

    def __init__(self, steps: Sequence[str], *, stderr: bool, has_fault: bool) -> None:
        self._steps = steps
        self._headings = headings()  # another thread draws the table, in another language
        self._has_fault = has_fault
        self._progress: tuple[str, float, int] | None = None
        self._verdicts: dict[str, Verdict] = {}
        self._live = Live(
            get_renderable=self._table,
            console=Console(stderr=stderr, highlight=False),
            refresh_per_second=PER_SECOND,
        )

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress = None
        self._live.stop()
        for verdict in self._verdicts.values():
            for note in notes_on(verdict, has_fault=self._has_fault):
                self._live.console.print(Text(f"{verdict.step}: {note}"))

    def watch(self, step: str, share: float, sold: int) -> None:
        """Show the share of answered presses and the number of written orders."""
        self._progress = step, share, sold

    def show(self, verdict: Verdict) -> None:
        """Fill in the line of a step that is done."""
        self._progress = None
        self._verdicts[verdict.step] = verdict
        self._live.refresh()

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        step, *others = self._headings
        table.add_column(step, no_wrap=True)
        table.add_column("", width=BAR_WIDTH)
        for heading in others:
            table.add_column(heading, justify="right")
        for name in self._steps:
            table.add_row(*self._row(name))
        return table

    def _row(self, step: str) -> list[RenderableType]:
        verdict, progress = self._verdicts.get(step), self._progress
        if verdict:
            name, *cells = map(Text, cells_of(verdict))
            for cell in cells[FINDINGS]:
                cell.style = "dim" if cell.plain == "0" else "bold red"
            name.style = "green" if verdict.is_right else "red"
            return [name, ProgressBar(1, 1, width=BAR_WIDTH), *cells]
        if progress and progress[0] == step:
            return [step, ProgressBar(1, progress[1], width=BAR_WIDTH), f"{progress[2]:,}"]
        return [Text(step, style="dim")]
