"""What a benchmark finds: figures by library, and how they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil

OURS = "ours"

Value = float | str
"""A number, or in a word why there is none."""


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
        """Return ours / theirs for each of the others where both are numbers, theirs not 0."""
        ours = self.values[OURS]
        return {
            title: ours / value
            for title, value in self.others()
            if isinstance(ours, float) and value
        }

    def others(self) -> Iterator[tuple[str, float]]:
        """Yield the numbers of the other libraries."""
        for title, value in self.values.items():
            if title != OURS and isinstance(value, float):
                yield title, value

    def not_ahead_of(self) -> list[tuple[str, float]]:
        """Return those who are as good as ours or better."""
        ours = self.values[OURS]
        if self.better is Better.ZERO or not isinstance(ours, float):
            return []
        sign = 1 if self.better is Better.HIGHER else -1
        return [(title, value) for title, value in self.others() if sign * value >= sign * ours]


def percentile(values: Sequence[float], share: float) -> Value:
    """Return the value that this share of all values does not exceed (nearest rank)."""
    if not values:
        return "none"
    return float(sorted(values)[ceil(share * len(values)) - 1])


def markdown(figures: Sequence[Figure], titles: Sequence[str]) -> str:
    """Return all figures as one table, with ours / theirs in brackets."""
    lines = [
        _line(["", "better", *titles]),
        _line(["---", "---", *["---:"] * len(titles)]),
        *(_line(_cells(figure, titles)) for figure in figures),
    ]
    return "\n".join(lines)


def not_ahead(figures: Sequence[Figure]) -> list[str]:
    """Return a plain line for each figure in which somebody is as good as ours or better."""
    lines = []
    for figure in figures:
        if rivals := figure.not_ahead_of():
            against = ", ".join(f"{title} {shown(value)}" for title, value in rivals)
            ours = shown(figure.values[OURS])
            lines.append(f"not ahead: {figure.row}: {figure.name}: {ours} against {against}")
    return lines


def shown(value: Value) -> str:
    """Return a number with about three digits, and a word as it is."""
    if isinstance(value, str):
        return value
    if value == round(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def _cells(figure: Figure, titles: Sequence[str]) -> list[str]:
    ratios = figure.ratios()
    cells = [f"{figure.row}: {figure.name}", figure.better.value]
    for title in titles:
        cell = shown(figure.values.get(title, "–"))
        cells.append(f"{cell} (×{shown(ratios[title])})" if title in ratios else cell)
    return cells


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
