"""The table of a crowd race: its columns, a verdict as their cells, and lines for a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from lab.crowd.stage import Progress
from lab.listing import culprit_of
from lab.steps import STEPS
from lab.verdict import MARKED_AS, Verdict, finding_text

HEADINGS = (
    gettext_noop("step"),
    gettext_noop("sold"),
    gettext_noop("oversold"),
    gettext_noop("doubled"),
    gettext_noop("lost"),
    gettext_noop("undersold"),
    gettext_noop("turned away"),
    gettext_noop("stuck"),
    gettext_noop("no answer"),
    gettext_noop("orders/s"),
    gettext_noop("p99 ms"),
)
FINDINGS = slice(1, 7)
"""The columns after the step's in which anything but 0 is a flaw."""

STEP_WIDTH = 14
GAP = 2


def headings() -> list[str]:
    return [_(heading) for heading in HEADINGS]


def cells_of(verdict: Verdict) -> list[str]:
    """Return a verdict as the table shows it."""
    counts = (
        verdict.sold,
        verdict.oversold,
        verdict.doubled,
        verdict.lost,
        verdict.undersold,
        verdict.turned_away,
        verdict.stuck,
        verdict.unanswered,
    )
    return [
        verdict.step,
        *(f"{count:,}" for count in counts),
        "–" if verdict.orders_per_s is None else f"{verdict.orders_per_s:,.0f}",
        "–" if verdict.p99_ms is None else f"{verdict.p99_ms:,.1f}",
    ]


def notes_on(verdict: Verdict, *, has_fault: bool) -> Iterator[str]:
    """Return a line for each thing that broke, with the line of code, then other remarks.

    ``has_fault`` says whether a fault was asked for.
    """
    for finding, count in verdict.findings:
        culprit = culprit_of(STEPS[verdict.step], MARKED_AS.get(finding, finding))
        yield f"{finding_text(finding, count)}: {culprit or '–'}"
    if verdict.told_lost:
        yield finding_text("told_lost", verdict.told_lost)
    if not verdict.is_quiet:
        yield _("it did not finish in time")
    if has_fault and not verdict.struck:
        yield _("the fault did not happen: the sale ended first")
    if verdict.error and verdict.unanswered:
        yield _("most of the missing answers were: %(error)s") % {"error": verdict.error}


class PlainTable:
    """A table without a terminal: a line for each step when it is done."""

    def __init__(self, write: Callable[[str], object], *, has_fault: bool) -> None:
        self._write = write
        self._has_fault = has_fault

    def __enter__(self) -> PlainTable:
        self._write(_line(headings()))
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the lines as they are."""

    def watch(self, progress: Progress) -> None:
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
