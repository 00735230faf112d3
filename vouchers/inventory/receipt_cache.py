"""Where one order stands, in one look at Redis: pending, or a row, of which there may be a copy.

A copy serves the crowd that asks for its receipts right after a sale. It is told for one turn of
the two hashes that hold copies at least, and for two at most. Whoever is about to change a row says
so first (:func:`forget_rows`), and until long after the change no copy is kept: one that was read
before it finds the order marked (``docs/adr/0015``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_errors, ledger_script
from vouchers.models import MAX_LIMIT

logger = logging.getLogger(__name__)

TURN_MS = 15_000
"""How long each of the two hashes takes new copies."""

COPY_MS = 2 * TURN_MS
"""So long a copy is told at most, also where Redis did not hear of a change."""

CHANGING_MS = 60_000
"""For so long after the word of a change no copy is kept; no transaction takes as long."""

_WHEREABOUTS = ledger_script("look_up_receipt")
_KEEP_ROW = ledger_script("cache_row")
_FORGET_ROWS = ledger_script("invalidate_rows")


@dataclass(frozen=True)
class Whereabouts:
    """What Redis knows: the copy of the order's row, its place in the queue from 1, or nothing."""

    row: str | None = None
    place: int | None = None


def whereabouts(*, sale_id: int, order_id: int, user_id: int) -> Whereabouts:
    """Return where this buyer's order stands.

    :raises LedgerUnavailable: Redis did not answer.
    """
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        answer = _WHEREABOUTS.run(
            ledger_connection(),
            keys=[*keys.copies, keys.buyers, keys.pending],
            args=[str(user_id), str(order_id), MAX_LIMIT],
        )
    match answer:
        case ["WRITTEN", row]:
            return Whereabouts(row=row)
        case ["PENDING", place]:
            return Whereabouts(place=int(place))
    return Whereabouts()


def keep_row(*, sale_id: int, order_id: int, row: str) -> None:
    """Keep a copy of what the order's row says, unless there is one or somebody is changing it.

    :raises LedgerUnavailable: Redis did not answer.
    """
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        _KEEP_ROW.run(
            ledger_connection(),
            keys=[*keys.copies, keys.changing],
            args=[TURN_MS, str(order_id), row],
        )


def forget_rows(*, sale_id: int, order_ids: Iterable[int]) -> None:
    """Say that these orders' rows are being changed; called before the change is committed.

    Where Redis does not answer, a copy may be told until its time is over.
    """
    keys, ids = LedgerKeys(sale_id), [str(order_id) for order_id in order_ids]
    if not ids:
        return
    try:
        with ledger_errors():
            _FORGET_ROWS.run(
                ledger_connection(),
                keys=[*keys.copies, keys.changing],
                args=[CHANGING_MS, *ids],
            )
    except LedgerUnavailable as error:
        logger.warning("copies of orders of sale %s may be told for a while: %s", sale_id, error)
