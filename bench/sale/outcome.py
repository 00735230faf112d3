"""The outcome of one whole sale, and whether it was sold exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.tables import percentile

OURS, CLASSIC = "ours", "classic"
EXACT = "sold exactly, no buyer twice"


@dataclass(frozen=True)
class Outcome:
    """One whole sale; ``answers`` are pairs of time (seconds after the start) and latency."""

    design: str
    to_last_row_s: float
    to_last_answer_s: float
    answers: Sequence[tuple[float, float]]
    verdict: str

    @property
    def all_s(self) -> float:
        return max(self.to_last_row_s, self.to_last_answer_s)

    def latency_ms(self, share: float) -> float:
        return percentile([latency_s for _, latency_s in self.answers], share) * 1000


def verdict_on(
    *, units: int, winners: set[int], rows: Sequence[int], books_agree: bool, others: set[int]
) -> str:
    """Return whether a sale was sold exactly, or the first fault.

    ``winners`` are the buyers who were told that they won, ``rows`` the buyers in the table.
    """
    if others:
        return f"answers with status {sorted(others)}"
    if len(rows) != units:
        return f"{len(rows)} rows for {units} units"
    if len(set(rows)) != len(rows):
        return f"{len(rows) - len(set(rows))} buyers have two"
    if set(rows) != winners:
        return f"{len(set(rows) ^ winners)} buyers were told otherwise than the rows"
    return EXACT if books_agree else "the stock does not fit the rows"
