"""Entries that no row can hold: accepted orders that keep their unit until staff decide.

Why an entry is set aside: Note [Who is at fault] in ``attempts.py``. A worker carries the decision
out, under its locks.
"""

import logging

from orders.placing.publishing import publish_fulfilment
from vouchers.inventory.batch_journal import Decision, set_aside
from vouchers.inventory.holdings import by_purchase
from vouchers.inventory.reservations import entries_set_aside, set_kick

logger = logging.getLogger(__name__)


def decide_unwritten(*, sale_id: int, decision: Decision) -> list[int]:
    """Let all entries of a sale that are set aside be written again, or refused.

    Return their order ids. An entry that still cannot be written is set aside again; one that is
    refused ends, and its unit is back on sale.

    :raises LedgerUnavailable: Redis did not respond; the same call again is safe.
    """
    purchases = by_purchase(entries_set_aside(sale_id=sale_id))
    moved = [
        entry
        for entries in purchases
        if set_aside(sale_id=sale_id, entries=entries, decision=decision)
        for entry in entries
    ]
    if moved and set_kick(sale_id=sale_id):
        publish_fulfilment(sale_id=sale_id)
    for entry in moved:
        logger.info("order %s of sale %s: staff decided to %s", entry.order_id, sale_id, decision)
    return [entry.order_id for entry in moved]
