"""The results as a table for the terminal, as JSON, and as a part of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import tables
from bench.sale.figures import HEADINGS, Line
from bench.sale.machine import as_text
from bench.sale.outcome import Outcome

WIDTH = 300


def show(lines: Sequence[Line], machine: dict[str, Any]) -> None:
    """Print the table and the machine."""
    tables.show(HEADINGS, [line.cells() for line in lines], as_text(machine), width=WIDTH)


def as_json(
    lines: Sequence[Line], outcomes: Sequence[Outcome], machine: dict[str, Any]
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
            for it in outcomes
        ],
        "machine": machine,
    }


def write_document(path: Path, lines: Sequence[Line], machine: dict[str, Any]) -> None:
    """Write table and machine into a document."""
    table = tables.markdown(HEADINGS, [line.cells() for line in lines])
    tables.write_part(path, "figures", f"{table}\n\n{as_text(machine)}")
