"""The figures of a run, by library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from bench import tables
from bench.tables import shown

OURS = "ours"

Value = float | str
"""A number, or a word that explains its absence."""


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"
    ZERO = "zero"


@dataclass(frozen=True)
class Figure:
    """One line of the table: the values of one measure by the titles of the libraries."""

    row: str
    name: str
    better: Better
    values: dict[str, Value]

    def ratios(self) -> dict[str, float]:
        """Return ours / theirs for each other library with a number other than 0."""
        ours = self.values[OURS]
        if not isinstance(ours, float):
            return {}
        return {title: ours / value for title, value in self.others() if value}

    def others(self) -> Iterator[tuple[str, float]]:
        """Yield the numbers of the other libraries."""
        for title, value in self.values.items():
            if title != OURS and isinstance(value, float):
                yield title, value


def markdown(figures: Sequence[Figure], titles: Sequence[str]) -> str:
    """Return all figures as one table, with ours / theirs in brackets."""
    rows = []
    for figure in figures:
        ratios = figure.ratios()
        cells = [f"{figure.row}: {figure.name}", figure.better.value]
        for title in titles:
            cell = shown(figure.values.get(title, "–"))
            cells.append(f"{cell} (×{shown(ratios[title])})" if title in ratios else cell)
        rows.append(cells)
    return tables.markdown(["", "better", *titles], rows, words=2)


def not_ahead(figures: Sequence[Figure]) -> list[str]:
    """Return a line for each figure in which another library is as good as ours or better."""
    lines = []
    for figure in figures:
        ours = figure.values[OURS]
        if figure.better is Better.ZERO or not isinstance(ours, float):
            continue
        sign = 1 if figure.better is Better.HIGHER else -1
        rivals = [
            f"{title} {shown(value)}"
            for title, value in figure.others()
            if sign * value >= sign * ours
        ]
        if rivals:
            name, against = f"{figure.row}: {figure.name}", ", ".join(rivals)
            lines.append(f"not ahead: {name}: {shown(ours)} against {against}")
    return lines
