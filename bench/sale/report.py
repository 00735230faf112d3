"""The results as a table for the terminal, as JSON, and as a part of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.sale.figures import HEADINGS, Line, markdown
from bench.sale.found import Found
from bench.sale.machine import as_text

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
NARROWEST = 150
COLOURS = {"pass": "green", "MISS": "bold red", "shown": "dim"}


def show(lines: Sequence[Line], machine: dict[str, Any]) -> None:
    """Print the table; where it goes to no terminal it is as wide as it needs."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 2 * NARROWEST
    table = Table(*HEADINGS, show_lines=True)
    for line in lines:
        table.add_row(*map(coloured, line.cells()))
    console.print(table)
    console.print(as_text(machine), soft_wrap=True)


def coloured(cell: str) -> str:
    """Return a verdict in its colour, and any other cell as it is."""
    return f"[{COLOURS[cell]}]{cell}[/]" if cell in COLOURS else escape(cell)


def as_json(
    lines: Sequence[Line], found: Sequence[Found], machine: dict[str, Any]
) -> dict[str, Any]:
    """Return everything, with the values of each repetition."""
    return {
        "lines": [
            {**asdict(line), "target": str(line.target or ""), "verdict": line.verdict}
            for line in lines
        ],
        "sales": [
            {
                "design": it.design,
                "verdict": it.verdict,
                "to_last_row_s": it.to_last_row_s,
                "to_last_answer_s": it.to_last_answer_s,
                "latency_ms": {f"p{share}": it.latency_ms(share / 100) for share in (50, 90, 99)},
            }
            for it in found
        ],
        "machine": machine,
    }


def write_document(path: Path, lines: Sequence[Line], machine: dict[str, Any]) -> None:
    """Write table and machine between the two marks of a document, or a file of its own."""
    write_between(path, BEGIN, END, f"{markdown(lines)}\n\n{as_text(machine)}")


def write_between(path: Path, begin: str, end: str, figures: str) -> None:
    """Write figures between two marks of a document, or a file of its own."""
    text = path.read_text() if path.exists() else ""
    before, found, rest = text.partition(begin)
    after = rest.partition(end)[2] if found else "\n"
    path.write_text(f"{before if found else ''}{begin}\n{figures}\n{end}{after}")
