"""What this process heard last of sales that are sold out, for as long as that may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

REPEATED_S = 0.2
"""So long after the ledger said "sold out" a first attempt may be told so without asking again.

A unit that comes back is seen within this time.
"""

MOST_SALES = 10_000


@dataclass(frozen=True)
class Heard:
    """What the ledger said last: when that request arrived, and since when nothing is left."""

    arrived_at_ms: int
    sold_out_at_ms: int | None
    at: float

    def arrival_ms(self) -> int:
        """Return now as the clock of Redis has it."""
        return self.arrived_at_ms + round((monotonic() - self.at) * 1000)


_heard: dict[int, Heard] = {}


def hear(*, sale_id: int, arrived_at_ms: int, sold_out_at_ms: int | None) -> None:
    """Remember that the ledger has just said that nothing is left."""
    if len(_heard) >= MOST_SALES:
        _heard.clear()
    _heard[sale_id] = Heard(arrived_at_ms, sold_out_at_ms, monotonic())


def heard(*, sale_id: int) -> Heard | None:
    """Return what the ledger has said within ``REPEATED_S``, or None; never asks it."""
    found = _heard.get(sale_id)
    return found if found and monotonic() - found.at < REPEATED_S else None


def forget() -> None:
    """Forget everything, as a new process."""
    _heard.clear()
