"""The table of a crowd race: a line for each step when it is done."""

from collections.abc import Iterator

from lab.listing import culprit_of
from lab.steps import STEPS
from lab.texts import TEXTS
from lab.verdict import Verdict, finding_text

FINDINGS = slice(1, 8)
"""The columns after the step's own; any value but 0 is a flaw."""

FORMATS = {"step": "", "orders_per_s": ",.0f", "p99_ms": ",.1f"}
STEP_WIDTH = 14
GAP = 2


def headings() -> list[str]:
    return [str(heading) for heading in TEXTS["column"].values()]


def cells_of(verdict: Verdict) -> list[str]:
    """Return the cells of a verdict."""
    values = {name: getattr(verdict, name) for name in TEXTS["column"]}
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
        yield str(TEXTS["note"]["unfinished"])
    if has_fault and not verdict.struck:
        yield str(TEXTS["note"]["no_fault"])
    if verdict.answered:
        answered = " + ".join(map(str, verdict.answered))
        yield TEXTS["note"]["answered"] % {"answered": answered, "sent_on": verdict.sent_on}
    if verdict.error and verdict.unanswered:
        yield TEXTS["note"]["unanswered"] % {"error": verdict.error}


def lines_of(verdict: Verdict, *, has_fault: bool) -> Iterator[str]:
    """Return the line of a step, and the notes on it below."""
    yield line_of(cells_of(verdict))
    for note in notes_on(verdict, has_fault=has_fault):
        yield f"{'':{STEP_WIDTH}}{note}"


def line_of(cells: list[str]) -> str:
    """Return cells, or the headings, in columns."""
    step, *others = cells
    widths = [len(heading) + GAP for heading in headings()[1:]]
    columns = (cell.rjust(width) for cell, width in zip(others, widths, strict=True))
    return f"{step:{STEP_WIDTH}}{''.join(columns)}"
