"""Batch journal: the batch that a worker is writing, and earlier attempts at single entries.

They are recorded before each attempt, so an entry that kills its worker is known afterwards
(``docs/adr/0010``).
"""

from collections.abc import Sequence

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors, ledger_script, run_script
from vouchers.inventory.reservations import PendingEntry

_RECORD_BATCH = ledger_script("record_batch")
_READ_SUSPECTS = ledger_script("read_suspects")


def record_batch(*, sale_id: int, entries: Sequence[PendingEntry]) -> int:
    """Record what is about to be written, and return the batch's number, higher than any before.

    The caller holds the sale's lock. A number that the row has stored already means that the
    ledger is older than the row.

    :raises NotLoaded: the sale has no ledger to number it.
    """
    keys, ids = LedgerKeys(sale_id), [str(entry.order_id) for entry in entries]
    number = run_script(_RECORD_BATCH, [*keys.contents, keys.trying], *ids, read=str)
    if not number:
        raise NotLoaded(f"sale {sale_id} is not loaded")
    return int(number)


def clear_batch(*, sale_id: int) -> None:
    """Delete the record of a batch that failed: its worker is alive and knows the reason."""
    with ledger_errors():
        ledger_connection().delete(LedgerKeys(sale_id).trying)


def read_suspects(*, sale_id: int) -> set[int]:
    """Return the order ids to write alone: they failed before, or their worker died."""
    keys = LedgerKeys(sale_id)
    return set(map(int, run_script(_READ_SUSPECTS, [keys.tries, keys.trying], read=list)))


def count_attempt(*, sale_id: int, order_id: int) -> int:
    """Count an attempt to write this entry alone, and return the number of attempts."""
    with ledger_errors():
        return int(ledger_connection().hincrby(LedgerKeys(sale_id).tries, str(order_id), 1))


def undo_attempt(*, sale_id: int, order_id: int) -> None:
    """Take back the last attempt: its failure was not caused by the entry."""
    key, field = LedgerKeys(sale_id).tries, str(order_id)
    with ledger_errors():
        if ledger_connection().hincrby(key, field, -1) <= 0:
            ledger_connection().hdel(key, field)
