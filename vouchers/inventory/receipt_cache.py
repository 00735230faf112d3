"""The receipt cache: copies of rows, for the crowd that asks for receipts right after a sale.

One call to Redis finds an order among the copies or the pending entries. A copy is served for at
least one turn of the two hashes that hold copies, and for at most two. Before a row changes, its
copy is dropped, and none is cached until long after the change: a reader that saw the old row finds
the order marked (``docs/adr/0015``).

If Redis does not respond, :func:`invalidate_rows` logs it; the others raise ``LedgerUnavailable``.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from locks.lua_script import ScriptCall
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_script, run_script
from vouchers.models import MAX_LIMIT

logger = logging.getLogger(__name__)

ROTATION_MS = 15_000
"""The time for which each of the two hashes takes new copies. No copy is served for more than twice
that, even if Redis missed the change of its row."""

CHANGING_MS = 60_000
"""The time for which no copy of a changing row is cached; no transaction takes as long."""

_LOOK_UP_RECEIPT = ledger_script("look_up_receipt")
_CACHE_ROW = ledger_script("cache_row")
_INVALIDATE_ROWS = ledger_script("invalidate_rows")


class LookupCode(StrEnum):
    """The codes of ``look_up_receipt.lua``."""

    WRITTEN = "WRITTEN"
    PENDING = "PENDING"
    ENTERED = "ENTERED"
    ELSEWHERE = "ELSEWHERE"


@dataclass(frozen=True)
class ReceiptLookup:
    """The result of a look-up in Redis: the copy of a row, a queue position from 1, or nothing.

    For an entry in a draw that has not been drawn, the end of the sale.
    """

    row: str | None = None
    queue_position: int | None = None
    entered_until_ms: int | None = None


def look_up_receipt_call(*, sale_id: int, order_id: int, user_id: int) -> ScriptCall[ReceiptLookup]:
    """Build the call that returns what Redis knows of this buyer's order."""
    keys = LedgerKeys(sale_id)
    return ScriptCall(
        script=_LOOK_UP_RECEIPT,
        keys=[*keys.copies, keys.buyers, keys.pending, keys.entries],
        args=[str(user_id), str(order_id), MAX_LIMIT],
        read=_read_lookup,
    )


def _read_lookup(reply: list[str]) -> ReceiptLookup:
    match LookupCode(reply[0]):
        case LookupCode.WRITTEN:
            return ReceiptLookup(row=reply[1])
        case LookupCode.PENDING:
            return ReceiptLookup(queue_position=int(reply[1]))
        case LookupCode.ENTERED:
            return ReceiptLookup(entered_until_ms=int(reply[1]))
        case LookupCode.ELSEWHERE:
            return ReceiptLookup()
        case unknown:
            assert_never(unknown)


def cache_row(*, sale_id: int, order_id: int, row: str) -> None:
    """Cache what the order's row says, unless it has a copy or is changing."""
    keys = LedgerKeys(sale_id)
    run_script(
        _CACHE_ROW, [*keys.copies, keys.changing], ROTATION_MS, str(order_id), row, read=bool
    )


def invalidate_rows(*, sale_id: int, order_ids: Iterable[int]) -> None:
    """Drop the copies of rows that are being changed; call it before the change is committed.

    If Redis does not respond, a copy may be served until it expires.
    """
    keys, ids = LedgerKeys(sale_id), [str(order_id) for order_id in order_ids]
    if not ids:
        return
    try:
        run_script(_INVALIDATE_ROWS, [*keys.copies, keys.changing], CHANGING_MS, *ids, read=bool)
    except LedgerUnavailable as error:
        logger.warning("sale %s may serve old receipts for a while: %s", sale_id, error)
