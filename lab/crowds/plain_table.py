"""The table of a race where there is no terminal: a line for each step when it is done."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from lab.crowds.selling import Progress
from lab.crowds.table import cells_of, headings
from lab.notes import notes_on
from lab.verdict import Verdict

STEP_WIDTH = 14
GAP = 2


class PlainTable:
    """Writes lines; says nothing of a sale that is under way."""

    def __init__(self, write: Callable[[str], object], *, struck: bool) -> None:
        self._write = write
        self._struck = struck

    def __enter__(self) -> Self:
        self._write(_line(headings()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Nothing is open."""

    def watch(self, progress: Progress) -> None:
        """A log wants no bars."""

    def show(self, verdict: Verdict) -> None:
        self._write(_line(cells_of(verdict)))
        for note in notes_on(verdict, struck=self._struck):
            self._write(f"{'':{STEP_WIDTH}}{note}")


def _line(cells: list[str]) -> str:
    step, *others = cells
    widths = [len(heading) + GAP for heading in headings()[1:]]
    columns = (cell.rjust(width) for cell, width in zip(others, widths, strict=True))
    return f"{step:{STEP_WIDTH}}{''.join(columns)}"
