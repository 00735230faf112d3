"""Attempts: what a worker is about to write, and what it has tried in vain before.

Written to the ledger before each try, so that an entry which kills its worker is known afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors, ledger_script
from vouchers.inventory.reservations import PendingEntry

_BEGIN_BATCH = ledger_script("record_batch")
_SUSPECTS = ledger_script("suspect_ids")


def begin_batch(*, sale_id: int, entries: Sequence[PendingEntry]) -> int:
    """Note what is about to be written, and return the batch's number, higher than any before.

    The caller holds the sale's lock. A number that the row has seen already means that the ledger
    is an older one than the row.

    :raises NotLoaded: there is no ledger to give one.
    """
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        number = _BEGIN_BATCH.run(
            ledger_connection(),
            keys=[*keys.contents, keys.trying],
            args=[str(entry.order_id) for entry in entries],
        )
    if not number:
        raise NotLoaded
    return int(number)


def forget_batch(*, sale_id: int) -> None:
    """Take the note back: its worker lives, and knows what went wrong."""
    with ledger_errors():
        ledger_connection().delete(LedgerKeys(sale_id).trying)


def suspects(*, sale_id: int) -> set[int]:
    """Return the order ids that are to be written alone: they failed, or their worker died."""
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        ids = _SUSPECTS.run(ledger_connection(), keys=[keys.tries, keys.trying], args=[])
    return set(map(int, ids))


def count_try(*, sale_id: int, order_id: int) -> int:
    """Count one attempt made with this entry alone, and return how many there were."""
    with ledger_errors():
        return int(ledger_connection().hincrby(LedgerKeys(sale_id).tries, str(order_id), 1))


def uncount_try(*, sale_id: int, order_id: int) -> None:
    """Take back the last attempt: what failed it says nothing about the entry."""
    key, field = LedgerKeys(sale_id).tries, str(order_id)
    with ledger_errors():
        if ledger_connection().hincrby(key, field, -1) <= 0:
            ledger_connection().hdel(key, field)
