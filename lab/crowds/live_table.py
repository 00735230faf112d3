"""The table of a race as it fills, on a terminal: a line and a bar for each step."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lab.crowds.selling import Progress
from lab.crowds.table import FINDINGS, cells_of, headings
from lab.notes import notes_on
from lab.verdict import Verdict

BAR_WIDTH = 10
PER_SECOND = 8


class LiveTable:
    """Shows what the race tells of each step; the last state stays on the terminal."""

    def __init__(self, steps: Sequence[str], *, stderr: bool, struck: bool) -> None:
        self._steps = steps
        self._headings = headings()  # the table is drawn in another thread, of another language
        self._struck = struck
        self._progress: Progress | None = None
        self._verdicts: dict[str, Verdict] = {}
        self._live = Live(
            get_renderable=self._table,
            console=Console(stderr=stderr, highlight=False),
            refresh_per_second=PER_SECOND,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._progress = None
        self._live.stop()
        for verdict in self._verdicts.values():
            for note in notes_on(verdict, struck=self._struck):
                self._live.console.print(Text(f"{verdict.step}: {note}"))

    def watch(self, progress: Progress) -> None:
        """Note how far a sale is."""
        self._progress = progress

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
        verdict = self._verdicts.get(step)
        if verdict:
            name, *cells = map(Text, cells_of(verdict))
            for cell in cells[FINDINGS]:
                cell.style = "dim" if cell.plain == "0" else "bold red"
            name.style = "red" if verdict.findings or not verdict.is_quiet else "green"
            return [name, _bar(1, 1), *cells]
        if self._progress and self._progress.step == step:
            progress = self._progress
            return [step, _bar(progress.answered, progress.presses), f"{progress.sold:,}"]
        return [Text(step, style="dim")]


def _bar(done: int, of: int) -> ProgressBar:
    return ProgressBar(total=of, completed=done, width=BAR_WIDTH)
