"""What the benchmark finds: a line for each target, with the values of all repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.locks.figures import shown


@dataclass(frozen=True)
class Target:
    """The bound that the median is to keep."""

    bound: float
    at_least: bool = True
    unit: str = "×"

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {_with_unit(self.bound, self.unit)}"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    ``values`` has one value a repetition: a ratio, or where nothing is compared the figure itself.
    ``ours`` and ``theirs`` are what the ratios were made of, in ``unit``.
    """

    row: str
    name: str
    against: str
    target: Target | None
    values: Sequence[float]
    unit: str = ""
    ours: Sequence[float] = ()
    theirs: Sequence[float] = ()
    processor: Sequence[float] = ()
    note: str = ""

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "shown"
        return "pass" if self.target.met_by(self.middle) else "MISS"

    def cells(self) -> list[str]:
        """Return the line as the table shows it."""
        unit = self.target.unit if self.target else ("×" if self.ours else self.unit)
        return [
            self.row,
            self.name,
            self.against,
            _of(self.ours, self.unit),
            _of(self.theirs, self.unit),
            _with_unit(self.middle, unit),
            spread(self.values),
            str(self.target) if self.target else "–",
            self.verdict,
            f"{shown(median(self.processor))}×" if self.processor else "–",
            self.note,
        ]


HEADINGS = (
    "row", "what", "against", "ours", "theirs", "measured", "min–max", "target", "verdict",
    "by processor time", "note",
)  # fmt: skip


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours / theirs, repetition by repetition."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def spread(values: Sequence[float]) -> str:
    """Return the least and the greatest value; of one alone there is none."""
    if len(values) < 2:
        return "–"
    return f"{shown(min(values))}–{shown(max(values))}"


def markdown(lines: Sequence[Line]) -> str:
    """Return the lines as a table."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(line.cells() for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _of(values: Sequence[float], unit: str) -> str:
    return _with_unit(median(values), unit) if values else "–"


def _with_unit(value: float, unit: str) -> str:
    return f"{shown(value)}{unit}" if unit in ("", "×") else f"{shown(value)} {unit}"
