"""Tables of figures: numbers as text, Markdown, the terminal and a part of a document."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

COLOURS = {"pass": "green", "MISS": "bold red", "shown": "dim"}
WIDTH = 300
"""Columns of the output if it is not a terminal."""


@dataclass(frozen=True)
class Report:
    """The results of a benchmark: a table, some lines about the run, and all values."""

    name: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: str
    values: dict[str, Any]

    def publish(self, options: Namespace) -> None:
        """Print the table and the text, and write the files that the options name."""
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = WIDTH
        table = Table(*self.headings, show_lines=True)
        for row in self.rows:
            cells = (f"[{COLOURS[it]}]{it}[/]" if it in COLOURS else escape(it) for it in row)
            table.add_row(*cells)
        console.print(table)
        console.print(self.text, soft_wrap=True)
        if options.json:
            options.json.write_text(json.dumps(self.values, indent=2) + "\n")
        if options.markdown:
            text = f"{markdown(self.headings, self.rows)}\n\n{self.text}"
            write_part(options.markdown, self.name, text)


def shown(value: float | str) -> str:
    """Format a number with about three digits; return a word as it is."""
    if isinstance(value, str):
        return value
    if value == round(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours / theirs, repetition by repetition."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def spread(values: Sequence[float]) -> str:
    """Return the least and the greatest of several values."""
    return "–" if len(values) < 2 else f"{shown(min(values))}–{shown(max(values))}"


def markdown(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, words: int | None = None
) -> str:
    """Return a Markdown table; columns after the first ``words`` are aligned to the right."""
    words = len(headings) if words is None else words
    marks = ["---"] * words + ["---:"] * (len(headings) - words)
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, marks, *rows))


def write_part(path: Path, name: str, text: str) -> None:
    """Write a text between the two marks of this name in a document, or into a new file.

    :raises ValueError: the document has no such marks; it stays as it is
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    document = path.read_text() if path.exists() else f"{begin}{end}\n"
    before, begun, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{path} has no marks for {name}: {begin} {end}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
