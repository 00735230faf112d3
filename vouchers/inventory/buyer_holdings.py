"""Where one buyer stands in a sale: what the ledger holds for them, and the place in the queue."""

from __future__ import annotations

from dataclasses import dataclass

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import Holding, LedgerKeys, ledger_errors, ledger_script
from vouchers.models import MAX_LIMIT

_STANDING = ledger_script("buyer_holdings")


@dataclass(frozen=True)
class HeldUnit(Holding):
    """One unit that a buyer holds; ``place`` is that in the queue, from 1, None once written."""

    place: int | None


@dataclass(frozen=True)
class Standing:
    """What one buyer holds in the ledger, unit by unit, at one moment by the clock of Redis."""

    now_ms: int
    units: list[HeldUnit]


def standing_of(*, sale_id: int, user_id: int) -> Standing:
    """Return what this buyer holds, also in a ledger that is not whole.

    :raises LedgerUnavailable: Redis did not answer.
    """
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        now_ms, *found = _STANDING.run(
            ledger_connection(), keys=[keys.buyers, keys.pending], args=[str(user_id), MAX_LIMIT]
        )
    numbers = map(int, found)
    units = [
        HeldUnit(order_id, user_id, unit, place or None)
        for unit, order_id, place in zip(numbers, numbers, numbers, strict=True)
    ]
    return Standing(int(now_ms), units)
