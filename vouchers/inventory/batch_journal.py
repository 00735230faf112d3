"""Batch journal: the batch that a worker is writing, failures of single entries, and the backoff.

A batch is recorded before each attempt, so an entry that kills its worker is known afterwards
(``docs/adr/0010``). Of a purchase of several units, which are written together, the first entry
stands for all.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from seckill_site.redis.ledger_connection import BACKING_OFF, ledger_connection
from vouchers.inventory.holdings import Holding
from vouchers.inventory.keys import (
    ASIDE_MS,
    LedgerKeys,
    NotLoaded,
    ledger_errors,
    ledger_script,
    run_script,
)
from vouchers.inventory.purchases import purchase_of
from vouchers.inventory.reservations import BACKOFF_MS, FAILURES_KEPT_MS, PendingEntry

_RECORD_BATCH = ledger_script("record_batch")
_COLLECT_SUSPECTS = ledger_script("collect_suspects")
_COUNT_FAILURE = ledger_script("count_failure")
_SET_ASIDE = ledger_script("set_aside")


class Suspect(NamedTuple):
    """A purchase to write apart from others: its counted failures, and the time since the last.

    ``alone`` says that it failed alone, or that two batches with it did not end. ``to_refuse`` says
    that staff have decided to refuse it.
    """

    failures: int
    last_ms_ago: int
    alone: bool
    to_refuse: bool


class Decision(StrEnum):
    """What ``set_aside.lua`` does with an entry: put it aside, try it again, or refuse it."""

    ASIDE = "aside"
    RETRY = "retry"
    REFUSE = "refuse"


def record_batch(*, sale_id: int, entries: Sequence[PendingEntry], identity: int = 0) -> int:
    """Record what is about to be written, and return the batch's number, higher than any before.

    The caller holds the sale's lock. A number that the row has stored already means that the
    ledger is older than the row. An ``identity`` of 0 is not checked.

    :raises NotLoaded: the sale has no ledger to number it, or one of another sale with its id.
    """
    keys, ids = LedgerKeys(sale_id), _first_ids(entries)
    number = run_script(_RECORD_BATCH, [*keys.contents, keys.trying], identity, *ids, read=str)
    if not number:
        raise NotLoaded(f"sale {sale_id} is not loaded")
    return int(number)


def _first_ids(entries: Sequence[PendingEntry]) -> list[str]:
    first: dict[int, str] = {}
    for entry in entries:
        first.setdefault(entry.purchase, str(entry.order_id))
    return list(first.values())


def clear_batch(*, sale_id: int) -> None:
    """Delete the record of a batch that failed: its worker is alive and knows the reason."""
    with ledger_errors():
        ledger_connection().delete(LedgerKeys(sale_id).trying)


def collect_suspects(*, sale_id: int, add: Sequence[PendingEntry] = ()) -> dict[int, Suspect]:
    """Return the purchases to write apart: they failed before, or their batch did not end.

    A worker died with its batch; the entries of another that took too long are to ``add``. The
    caller holds the sale's lock.
    """

    def read(reply: list[str]) -> dict[int, Suspect]:
        groups = zip(*[iter(reply)] * 4, strict=True)
        return {
            purchase_of(int(order_id)): Suspect(
                int(failures), int(last_ms_ago), how != "together", how == "refuse"
            )
            for order_id, failures, last_ms_ago, how in groups
        }

    keys, ids = LedgerKeys(sale_id), _first_ids(add)
    return run_script(_COLLECT_SUSPECTS, [keys.tries, keys.trying], *ids, read=read)


def count_failure(*, sale_id: int, order_id: int) -> int:
    """Count that this entry failed alone, at most once a second; return the number of failures."""
    return run_script(_COUNT_FAILURE, [LedgerKeys(sale_id).tries], str(order_id), read=int)


def set_aside(
    *, sale_id: int, entries: Sequence[Holding], decision: Decision = Decision.ASIDE
) -> bool:
    """Put a purchase aside, which keeps its units, or carry out the decision of staff about one.

    Return whether any entry was moved. Safe to repeat.
    """
    keys = LedgerKeys(sale_id)
    args = [text for it in entries for text in (it.member, str(it.order_id))]
    return run_script(
        _SET_ASIDE, [keys.pending, keys.tries], ASIDE_MS, decision.value, *args, read=bool
    )


def back_off(*, sale_id: int, error: Exception) -> int:
    """Let no worker try this sale for a while, and return how long, in milliseconds."""
    keys, (first_ms, longest_ms) = LedgerKeys(sale_id), BACKOFF_MS
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        pipe.incr(keys.failures)
        pipe.pexpire(keys.failures, FAILURES_KEPT_MS)
        failures = min(int(pipe.execute()[0]), 16)
        pause_ms = min(first_ms << failures - 1, longest_ms)
        pipe.set(keys.backoff, "1", px=pause_ms)
        pipe.set(BACKING_OFF, f"sale {sale_id}: {error}"[:200], px=pause_ms + longest_ms)
        pipe.execute()
    return pause_ms
