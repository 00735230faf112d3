"""The table of a crowd race as it fills, on a terminal: a line and a bar for each step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lab.crowd.stage import Progress
from lab.crowd.tables import FINDINGS, cells_of, headings, notes_on
from lab.verdict import Verdict

BAR_WIDTH = 10
PER_SECOND = 8


class LiveTable:
    """Shows the progress of each step; the last state stays on the terminal."""

    def __init__(self, steps: Sequence[str], *, stderr: bool, has_fault: bool) -> None:
        self._steps = steps
        self._headings = headings()  # the table is drawn in another thread, of another language
        self._has_fault = has_fault
        self._progress: Progress | None = None
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

    def watch(self, progress: Progress) -> None:
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
        verdict, progress = self._verdicts.get(step), self._progress
        if verdict:
            name, *cells = map(Text, cells_of(verdict))
            for cell in cells[FINDINGS]:
                cell.style = "dim" if cell.plain == "0" else "bold red"
            name.style = "green" if verdict.is_right else "red"
            return [name, _bar(1, 1), *cells]
        if progress and progress.step == step:
            return [step, _bar(progress.answered, progress.presses), f"{progress.sold:,}"]
        return [Text(step, style="dim")]


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=BAR_WIDTH)
