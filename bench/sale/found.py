"""What one whole sale showed, and whether it was sold exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.locks.figures import percentile

OURS, CLASSIC = "ours", "classic"
EXACT = "sold exactly, no buyer twice"


@dataclass(frozen=True)
class Found:
    """One whole sale; ``answers`` are pairs of when (seconds after the begin) and latency."""

    design: str
    to_last_row_s: float
    to_last_answer_s: float
    answers: Sequence[tuple[float, float]]
    verdict: str

    @property
    def exact(self) -> bool:
        return self.verdict == EXACT

    @property
    def all_s(self) -> float:
        return max(self.to_last_row_s, self.to_last_answer_s)

    def latency_ms(self, share: float) -> float:
        latencies = [latency_s for _, latency_s in self.answers]
        return float(percentile(latencies, share)) * 1000


def verdict_on(
    *, units: int, told: set[int], rows: Sequence[int], books_agree: bool, others: set[int]
) -> str:
    """Say whether a sale was sold exactly, or first what was wrong with it.

    ``told`` are the buyers whom an answer said that they won, ``rows`` the buyers in the table.
    """
    if others:
        return f"answers with status {sorted(others)}"
    if len(rows) != units:
        return f"{len(rows)} rows for {units} units"
    if len(set(rows)) != len(rows):
        return f"{len(rows) - len(set(rows))} buyers have two"
    if set(rows) != told:
        return f"{len(set(rows) ^ told)} buyers were told otherwise than the rows"
    return EXACT if books_agree else "the stock does not fit the rows"
