"""A step of the course: its answers, its ``buy``, and its sales in the lab's own tables."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lab.keys import NO_EXPIRY, USER_LOCKS, LabKeys, delete_keys
from lab.models import LONG_AGO, LabLock, LabOrder, LabSale
from lab.texts import TEXTS
from seckill_site.redis.ledger_connection import ledger_connection

KEY_OF_LOCK = re.compile(r":lock:(\d+)$")


class Answer(StrEnum):
    """The answer to a press."""

    BOUGHT = "bought"
    """The order is written."""
    QUEUED = "queued"
    """The order will be written."""
    SOLD_OUT = "sold out"
    ALREADY_ORDERED = "already ordered"
    BUSY = "busy"
    """Another press of this buyer is in progress: try again."""
    NOT_ON_SALE = "not on sale"
    """The sale has not started, or has ended."""


PROMISES = frozenset({Answer.BOUGHT, Answer.QUEUED})
"""Answers after which a buyer expects a unit."""


class Writer(Protocol):
    """The background half of a step that has one; it lives in a process that sells."""

    def work_once(self) -> bool:
        """Write one order, waiting briefly for it; return False if none came."""


@dataclass(frozen=True)
class Step:
    """One design.

    ``buy`` takes ``sale_id`` and ``user_id``. ``prepare`` gets the id and the units of a new sale.
    ``writer`` makes the background half of one process, whose name tells it from others.
    """

    name: str
    buy: Callable[..., Answer]
    prepare: Callable[[int, int], None] | None = None
    writer: Callable[[str], Writer] | None = None

    @property
    def title(self) -> str:
        return str(TEXTS["step"][self.name])

    @property
    def is_ours(self) -> bool:
        """Whether this is the shop itself, with its ledger, its tokens and its receipts."""
        return self.name == "ours"

    def open(self, units: int, begins_at: dt.datetime = LONG_AGO) -> int:
        """Put units on sale and return the sale's id."""
        sale_id = LabSale.objects.create(
            step=self.name, offered=units, stock=units, begins_at=begins_at
        ).pk
        if self.prepare:
            self.prepare(sale_id, units)
        return sale_id

    def buyers(self, count: int) -> list[int]:
        """Return the ids of this many buyers; the lab accepts any number as a user id."""
        return list(range(1, count + 1))

    def rows(self, sale_id: int) -> list[int]:
        """Return the user id of each order that is written and counts, in the order of writing."""
        orders = LabOrder.objects.filter(sale_id=sale_id).order_by("pk")
        return list(orders.values_list("user_id", flat=True))

    def barred_buyers(self, sale_id: int) -> set[int]:
        """Return the ids of users whom keys of a sale keep from buying forever.

        These are the buyers that Redis remembers, and those with a lock that never expires.
        """
        client, keys = ledger_connection(), LabKeys(sale_id)
        locks = {it: KEY_OF_LOCK.search(it) for it in client.scan_iter(keys.pattern, count=1_000)}
        endless = [it for name, it in locks.items() if it and client.ttl(name) == NO_EXPIRY]
        return {*map(int, client.smembers(keys.buyers)), *(int(it[1]) for it in endless)}

    def clear(self, sale_id: int) -> None:
        """Remove a sale with its orders and keys, once no process uses it any more."""
        LabOrder.objects.filter(sale_id=sale_id).delete()
        LabSale.objects.filter(pk=sale_id).delete()
        pattern = LabKeys(sale_id).pattern
        LabLock.objects.filter(name__startswith=pattern.rstrip("*")).delete()
        delete_keys(pattern)
        delete_keys(f"{USER_LOCKS}*")
