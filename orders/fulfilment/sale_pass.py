"""One pass of a worker over the pending entries of a sale: what is next, and what is put off."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from django.conf import settings

from locks import MultiLock, RedisLock
from orders.fulfilment.attempts import HeldLocks
from orders.fulfilment.batch import BatchOutcome
from vouchers.inventory.batch_journal import Suspect
from vouchers.inventory.holdings import by_purchase
from vouchers.inventory.purchases import is_in_block
from vouchers.inventory.reservations import PendingEntry, pending_entries
from vouchers.models import MAX_LIMIT

SUSPECTS_AT_ONCE = 25
"""How many purchases are written together that were in one batch when their worker died.

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

    Purchases that failed before, or may have killed a worker (``suspects``), and those whose
    buyer's lock is taken, are put off and written when they are due, so that the others do not wait
    for them. ``database_proved_writable`` says that the database has taken a write in this pass.

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
    put_off: dict[int, tuple[float, list[PendingEntry]]] = field(default_factory=dict)

    def next_entries(self, *, beyond: Sequence[PendingEntry] = ()) -> list[PendingEntry]:
        """Return the next batch of entries after those put off and those being written.

        It cuts no purchase, so it may be a little longer than a batch: Note [Purchases] in
        ``worker.py``.
        """
        put_off = chain.from_iterable(entries for _, entries in self.put_off.values())
        known = {entry.order_id for entry in chain(put_off, beyond)}
        skip, count = len(known), settings.SECKILL_BATCH_UNITS
        entries = self._read(skip, count)
        if len(entries) == count and is_in_block(entries[-1].order_id):
            after = self._read(skip + count, MAX_LIMIT)
            entries += [it for it in after if it.purchase == entries[-1].purchase]
        # The known entries may not be the oldest any more: staff put one back, or one was junk.
        if skip and entries and is_in_block(entries[0].order_id):
            before = self._read(max(skip - MAX_LIMIT, 0), min(skip, MAX_LIMIT))
            entries = [it for it in before if it.purchase == entries[0].purchase] + entries
        return [entry for entry in entries if entry.order_id not in known]

    def _read(self, skip: int, count: int) -> list[PendingEntry]:
        return pending_entries(sale_id=self.sale_id, skip=skip, count=count)

    def put_off_entries(self, entries: Sequence[PendingEntry], *, seconds: float) -> None:
        """Let these entries wait for their next attempt."""
        due = time.monotonic() + seconds
        self.put_off.update((units[0].purchase, (due, units)) for units in by_purchase(entries))

    def next_put_off(self) -> tuple[float, list[PendingEntry]]:
        """Return when the next attempt is due, and the entries to write then."""
        due, first = min(self.put_off.values(), key=itemgetter(0))
        if self.is_alone(first):
            return due, first
        now = max(due, time.monotonic())
        ready = [units for at, units in self.put_off.values() if at <= now]
        together = [units for units in ready if not self.is_alone(units)]
        return due, list(chain.from_iterable(together[:SUSPECTS_AT_ONCE]))

    def is_alone(self, entries: Sequence[PendingEntry]) -> bool:
        """Return whether this purchase must be written alone."""
        suspect = self.suspects.get(entries[0].purchase)
        return bool(suspect and suspect.alone)

    def settle(self, entries: Sequence[PendingEntry]) -> None:
        """Note that these entries have left pending, or the reach of workers."""
        self.settled += len(entries)
        if self.put_off:
            for entry in entries:
                self.put_off.pop(entry.purchase, None)

    def is_late(self) -> bool:
        """Return whether the pass has to end."""
        return time.monotonic() >= self.deadline
