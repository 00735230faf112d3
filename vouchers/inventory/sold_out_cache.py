"""A 0.2 s memory of "sold out" answers in each process. It decides nothing about stock.

After the ledger (``reserve.lua``) answers "sold out", ``orders/web/order_answers.py`` may repeat it
to first attempts. A unit that comes back is seen within ``SOLD_OUT_TTL_S``; a retry always asks.
"""

from time import monotonic
from typing import NamedTuple

from seckill_site.process_memory import Memory

SOLD_OUT_TTL_S = 0.2


class SoldOutAnswer(NamedTuple):
    """A "sold out" of the ledger: when its request arrived, and when the last unit went if known.

    Both are by the clock of Redis. ``remembered_at_s`` is by this process's monotonic clock.
    """

    arrived_at_ms: int
    sold_out_at_ms: int | None
    remembered_at_s: float

    def redis_now_ms(self) -> int:
        return self.arrived_at_ms + round((monotonic() - self.remembered_at_s) * 1000)


_answers = Memory[int, SoldOutAnswer](most=10_000, for_s=SOLD_OUT_TTL_S)


def remember_sold_out(*, sale_id: int, arrived_at_ms: int, sold_out_at_ms: int | None) -> None:
    """Remember that the ledger just answered "sold out"."""
    _answers.keep(sale_id, SoldOutAnswer(arrived_at_ms, sold_out_at_ms, monotonic()))


def recall_sold_out(*, sale_id: int) -> SoldOutAnswer | None:
    """Return the ledger's answer of the last ``SOLD_OUT_TTL_S``, or None; never ask the ledger."""
    return _answers.recall(sale_id)
