"""One pass of a worker over the pending entries of a sale: what is next, and what is put off."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from django.conf import settings

from locks import MultiLock, RedisLock
from orders.fulfilment.attempts import HeldLocks
from orders.fulfilment.batch import BatchOutcome
from vouchers.inventory.batch_journal import Suspect
from vouchers.inventory.reservations import PendingEntry, pending_entries

SUSPECTS_AT_ONCE = 25
"""How many entries are written together that were in one batch when their worker died.

Most of them are innocent, so one by one would take long; the one that did it dies with few others.
"""


class LockedBatch(NamedTuple):
    """Entries to write together, and the locks of their buyers; leaving ``locks`` releases them."""

    entries: Sequence[PendingEntry]
    users: MultiLock
    locks: ExitStack


class UnconfirmedBatch(NamedTuple):
    """The outcome of a committed batch that the ledger does not know yet, and its buyers' locks."""

    outcome: BatchOutcome
    locks: ExitStack


@dataclass
class SalePass:
    """The state of a pass over a sale whose lock this worker holds.

    Entries that failed before, or may have killed a worker (``suspects``), and those whose buyer's
    lock is taken, are put off and written when they are due, so that the others do not wait for
    them. ``database_proved_writable`` says that the database has taken a write in this pass.

    Note [Overlap] in ``worker.py`` says when ``ahead``, ``batch`` and ``unconfirmed`` change.
    """

    sale_id: int
    identity: int
    lock: RedisLock
    deadline: float
    suspects: dict[int, Suspect]
    settled: int = 0
    database_proved_writable: bool = False
    held: HeldLocks = field(init=False)
    ahead: LockedBatch | None = None
    batch: LockedBatch = field(init=False)
    unconfirmed: UnconfirmedBatch | None = None
    put_off: dict[int, tuple[float, PendingEntry]] = field(default_factory=dict)

    def next_entries(self, *, beyond: Sequence[PendingEntry] = ()) -> list[PendingEntry]:
        """Return the next batch of entries after those put off and those being written."""
        known = {*self.put_off, *[entry.order_id for entry in beyond]}
        count = settings.SECKILL_BATCH_UNITS
        return pending_entries(sale_id=self.sale_id, skip=len(known), count=count)

    def put_off_entry(self, entry: PendingEntry, *, seconds: float) -> None:
        """Let an entry wait for its next attempt."""
        self.put_off[entry.order_id] = (time.monotonic() + seconds, entry)

    def next_put_off(self) -> tuple[float, list[PendingEntry]]:
        """Return when the next attempt is due, and the entries to write then."""
        due, first = min(self.put_off.values(), key=itemgetter(0))
        if self.is_alone(first):
            return due, [first]
        now = max(due, time.monotonic())
        ready = [it for at, it in self.put_off.values() if at <= now and not self.is_alone(it)]
        return due, ready[:SUSPECTS_AT_ONCE]

    def is_alone(self, entry: PendingEntry) -> bool:
        """Return whether this entry must be written alone."""
        suspect = self.suspects.get(entry.order_id)
        return bool(suspect and suspect.alone)

    def settle(self, entries: Sequence[PendingEntry]) -> None:
        """Note that these entries have left pending, or the reach of workers."""
        self.settled += len(entries)
        for entry in entries:
            self.put_off.pop(entry.order_id, None)

    def is_late(self) -> bool:
        """Return whether the pass has to end."""
        return time.monotonic() >= self.deadline
