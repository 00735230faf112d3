"""The sales of the lab's own steps. Ours has those of the shop."""

from __future__ import annotations

import re

from lab.keys import LabKeys
from lab.models import LabOrder, LabSale
from seckill_site.ledger_connection import ledger_connection

NO_EXPIRY = -1
"""The answer of Redis for the time that a key without an end has left."""

KEY_OF_LOCK = re.compile(r":lock:(\d+)$")


def open_sale(step: str, offered: int) -> int:
    """Make the row of a sale, and return its id."""
    return LabSale.objects.create(step=step, offered=offered, stock=offered).pk


def make_buyers(count: int) -> list[int]:
    """Return the ids of so many buyers; the lab's own steps take any number for a user."""
    return list(range(1, count + 1))


def user_ids_of(sale_id: int) -> list[int]:
    """Return the user id of each order that is written, in the order of writing."""
    orders = LabOrder.objects.filter(sale_id=sale_id).order_by("pk")
    return list(orders.values_list("user_id", flat=True))


def barred_buyers(sale_id: int) -> set[int]:
    """Return the user ids that keys of a sale keep from buying for ever.

    These are the buyers of whom Redis knows, and those with a lock that never expires.
    """
    client, keys = ledger_connection(), LabKeys(sale_id)
    locks = {it: KEY_OF_LOCK.search(it) for it in client.scan_iter(keys.every, count=1_000)}
    endless = [it for name, it in locks.items() if it and client.ttl(name) == NO_EXPIRY]
    return {*map(int, client.smembers(keys.buyers)), *(int(it[1]) for it in endless)}


def clear_sale(sale_id: int) -> None:
    """Remove a sale with its orders and keys."""
    LabOrder.objects.filter(sale_id=sale_id).delete()
    LabSale.objects.filter(pk=sale_id).delete()
    client = ledger_connection()
    keys = list(client.scan_iter(LabKeys(sale_id).every, count=1_000))
    if keys:
        client.unlink(*keys)
