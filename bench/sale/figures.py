"""The lines of the benchmark's table, with the values of all repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.tables import ratios, shown, spread


@dataclass(frozen=True)
class Target:
    """The bound of the median."""

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

    ``values`` has one value a repetition: a ratio, or the figure itself if nothing is compared.
    The ratios are those of ``ours`` and ``theirs``, in ``unit``.
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
    def verdict(self) -> str:
        if self.target is None:
            return "shown"
        return "pass" if self.target.met_by(median(self.values)) else "MISS"

    def cells(self) -> list[str]:
        """Return the line as the table shows it."""
        unit = self.target.unit if self.target else ("×" if self.ours else self.unit)
        return [
            self.row,
            self.name,
            self.against,
            *(_with_unit(median(it), self.unit) if it else "–" for it in (self.ours, self.theirs)),
            _with_unit(median(self.values), unit),
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


def comparison(
    row: str,
    name: str,
    against: str,
    target: Target | None,
    ours: Sequence[float],
    theirs: Sequence[float],
    unit: str,
    *,
    theirs_first: bool = False,
    note: str = "",
) -> Line:
    """Return the line of a comparison, as ours / theirs or the other way round."""
    values = ratios(theirs, ours) if theirs_first else ratios(ours, theirs)
    return Line(row, name, against, target, values, unit, ours, theirs, note=note)


def _with_unit(value: float, unit: str) -> str:
    return f"{shown(value)}{unit}" if unit in ("", "×") else f"{shown(value)} {unit}"
