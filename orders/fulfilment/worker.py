"""The back half: pending entries in the ledger become rows in the database.

Lock outside, transaction inside, check after locking. The locks in Redis only keep workers out of
each other's way: the row lock, the unique key and the fence decide (``ARCHITECTURE.md``).

Note [Accepted means ended]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Every accepted order id ends: as a live row, as a refused row with its reason, or, if no row can
hold it, as an explicit release in the ledger. None is dropped, because its buyer was told
"accepted" and waits for the outcome. Three rules keep the promise:

- The script that reserves a unit adds the pending entry in the same step (``reserve.lua``), and an
  entry leaves pending only by ``confirm`` or ``release``, after the commit that made its row.
- The order id is the row's primary key, so a repeated batch finds its rows and reports them again.
  After a crash the work is repeated: the sweep sends the sale's task again.
- An entry that fails is put off and taken alone, so others can proceed. After ``SECKILL_MAX_TRIES``
  it is set aside: refused as ``failed``, its unit back on sale, and staff may retry it.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from locks import LockBusy, LockNotOwned, MultiLock, RedisLock, raise_fence
from orders.fulfilment.batch import (
    BatchOutcome,
    LockLost,
    StaleBatchNumber,
    StaleFence,
    write_batch,
)
from orders.models import RefusalReason
from seckill_site.failpoints import failpoint
from seckill_site.ledger_connection import ledger_connection
from seckill_site.metrics import FULFILLED
from vouchers.inventory.batch_journal import (
    clear_batch,
    count_attempt,
    read_suspects,
    record_batch,
    undo_attempt,
)
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors
from vouchers.inventory.rebuild import FENCE_BITS, ensure_safe_fence, load_sale, rebuild_sale
from vouchers.inventory.reservations import (
    PendingEntry,
    Release,
    acknowledge_kick,
    clear_kick,
    confirm,
    pending_entries,
    release,
    set_kick,
)
from vouchers.inventory.restart_watch import is_ledger_behind_row
from vouchers.inventory.sale_state import snapshot

logger = logging.getLogger(__name__)

TRANSIENT_ERRORS = frozenset({1020, 1040, 1053, 1205, 1213, 1290, 1836, 1927})
"""MySQL's numbers for changed rows, too many connections, shutdown, lock waits, deadlocks,
read-only and killed connections; those of its client are 2000 to 2099."""

GATHER_S, GATHER_STEP_S = 0.1, 0.02
"""Wait up to ``GATHER_S`` while entries keep arriving: a batch of a few costs about as much as one
of hundreds."""

RETRY_PAUSES_S = (0.05, 0.2, 0.5)
"""The pause before each new attempt after a transient error."""

_INTERRUPTIONS = (LockBusy, LockNotOwned, LockLost, StaleFence, StaleBatchNumber, NotLoaded)
"""Errors that end a pass early although no entry is at fault."""


@dataclass
class _Pass:
    """One pass over the pending entries of a sale whose lock this worker holds.

    Entries that failed before, or may have killed a worker (``suspects``), are put off to the end
    of the pass and then written alone, so that the others do not wait for them. ``skipped`` entries
    stay pending.
    """

    sale_id: int
    lock: RedisLock
    suspects: set[int]
    settled: int = 0
    skipped: int = 0
    put_off: list[PendingEntry] = field(default_factory=list)

    def next_entries(self) -> list[PendingEntry]:
        """Return the next batch of entries after those skipped."""
        count = settings.SECKILL_BATCH_UNITS
        return pending_entries(sale_id=self.sale_id, skip=self.skipped, count=count)


def fulfill_sale(*, sale_id: int) -> bool:
    """Turn the pending entries of a sale into rows, oldest first, until none is left to try.

    Return whether work is left for a new task, which the caller publishes. A sale whose lock is
    taken is left alone: its holder looks again after releasing the lock.

    :raises LedgerUnavailable: Redis did not respond; the sweep continues later.
    :raises django.db.Error: the database did not respond; the sweep continues later.
    """
    deadline = time.monotonic() + settings.SECKILL_WORK_MS / 1000
    acknowledge_kick(sale_id=sale_id)
    failpoint("fulfill.started")
    while True:
        try:
            walk = _locked_pass(sale_id=sale_id, deadline=deadline)
        except _INTERRUPTIONS as error:
            return _recover(error, sale_id=sale_id)
        stuck = walk.skipped and not walk.settled
        clear_kick(sale_id=sale_id)  # before the last look: later buyers send a task themselves
        if stuck or not pending_entries(sale_id=sale_id, skip=walk.skipped, count=1):
            return False
        if time.monotonic() >= deadline:
            return set_kick(sale_id=sale_id)


def _recover(error: Exception, *, sale_id: int) -> bool:
    """Repair what interrupted a pass; return whether a new task should continue."""
    if isinstance(error, LockNotOwned | LockLost):
        logger.warning("lost a lock of sale %s; the sweep continues", sale_id)
    if isinstance(error, StaleFence):
        _raise_fence(sale_id=sale_id, stored=error.stored)
        return set_kick(sale_id=sale_id)
    if not isinstance(error, StaleBatchNumber | NotLoaded):
        return False
    if isinstance(error, StaleBatchNumber) and (
        error.proven or is_ledger_behind_row(sale_id=sale_id)
    ):
        logger.warning("sale %s: its ledger is older than its row, rebuilding it", sale_id)
        rebuild_sale(sale_id=sale_id)
    return set_kick(sale_id=sale_id)


def _raise_fence(*, sale_id: int, stored: int) -> None:
    """Raise the next fencing token above the row's; without a ledger, the rebuild does that."""
    try:
        at_least = ensure_safe_fence(sale_id=sale_id, stored=stored)
    except NotLoaded:
        return
    with ledger_errors():
        raise_fence(ledger_connection(), LedgerKeys(sale_id).fence, at_least=at_least)


def is_transient(error: Exception) -> bool:
    """Return whether an error is transient: connection, lock or read-only, not due to an entry."""
    if isinstance(error, StaleFence | StaleBatchNumber | NotLoaded | LockLost | InterfaceError):
        return True
    if not isinstance(error, OperationalError):
        return False
    number = error.args[0] if error.args else None
    # SQLite has no numbers here; its operational errors are mostly a locked file.
    return not isinstance(number, int) or number in TRANSIENT_ERRORS or 2000 <= number < 2100


def _locked_pass(*, sale_id: int, deadline: float) -> _Pass:
    keys = LedgerKeys(sale_id)
    floor = _epoch(sale_id=sale_id) << FENCE_BITS
    with ledger_errors():
        lock = RedisLock(
            ledger_connection(),
            keys.sale_lock,
            lease_ms=settings.SECKILL_LEASE_MS,
            fence_key=keys.fence,
            fence_floor=floor,
        )
        with lock:
            failpoint("fulfill.locked")
            walk = _Pass(sale_id, lock, read_suspects(sale_id=sale_id))
            while time.monotonic() < deadline and _take_batch(walk):
                pass
            while time.monotonic() < deadline and walk.put_off:
                settled = _write_free(walk, [walk.put_off.pop(0)])
                walk.settled += settled
                walk.skipped -= settled
    return walk


def _epoch(*, sale_id: int) -> int:
    try:
        return snapshot(sale_id=sale_id).epoch
    except NotLoaded:
        load_sale(sale_id=sale_id)
        return snapshot(sale_id=sale_id).epoch


def _take_batch(walk: _Pass) -> bool:
    """Settle the next entries; return False if there are none."""
    entries = walk.next_entries()
    if walk.settled and entries:  # during a burst only: a single entry does not wait
        entries = _gather(walk, entries)
    if not entries:
        return False
    ready = [entry for entry in entries if entry.order_id not in walk.suspects]
    walk.put_off += [entry for entry in entries if entry.order_id in walk.suspects]
    settled = _write_free(walk, ready) if ready else 0
    walk.settled += settled
    walk.skipped += len(entries) - settled
    return True


def _gather(walk: _Pass, entries: list[PendingEntry]) -> list[PendingEntry]:
    """Wait while entries keep arriving."""
    until = time.monotonic() + GATHER_S
    while len(entries) < settings.SECKILL_BATCH_UNITS and time.monotonic() < until:
        before = len(entries)
        time.sleep(GATHER_STEP_S)
        entries = walk.next_entries()
        if len(entries) <= before:
            break
    return entries


def _write_free(walk: _Pass, entries: Sequence[PendingEntry]) -> int:
    """Settle the entries whose user lock is free; return how many."""
    keys = LedgerKeys(walk.sale_id)
    names = {keys.user_lock(entry.user_id): entry.user_id for entry in entries}
    users = MultiLock(ledger_connection(), list(names), lease_ms=settings.SECKILL_LEASE_MS)
    with users.holding_free() as held:
        held_ids = {names[name] for name in held}
        free = [entry for entry in entries if entry.user_id in held_ids]
        return _write_and_report(walk, free, users) if free else 0


def _write_and_report(walk: _Pass, entries: Sequence[PendingEntry], users: MultiLock) -> int:
    """Write these entries and update the ledger, halving a batch that fails; return how many."""
    sale_id, order_id = walk.sale_id, entries[0].order_id
    suspect = order_id in walk.suspects
    # Counted before the attempt: an entry that kills its process is counted too.
    if suspect and (count_attempt(sale_id=sale_id, order_id=order_id) > settings.SECKILL_MAX_TRIES):
        return _set_aside(walk, entries[0], users)
    try:
        outcome = _write(walk, entries, users)
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        clear_batch(sale_id=sale_id)  # a record that stays would mean a dead worker
        if is_transient(error):
            if suspect:
                undo_attempt(sale_id=sale_id, order_id=order_id)
            raise
        if len(entries) > 1:
            half = len(entries) // 2
            halves = entries[:half], entries[half:]
            return sum(_write_and_report(walk, it, users) for it in halves)
        logger.exception("order %s of sale %s failed", order_id, sale_id)
        if not suspect:
            count_attempt(sale_id=sale_id, order_id=order_id)
        return 0
    _update_ledger(sale_id, outcome)
    return len(entries)


def _write(
    walk: _Pass,
    entries: Sequence[PendingEntry],
    users: MultiLock,
    refuse_as: RefusalReason | None = None,
) -> BatchOutcome:
    """Write one batch, and again after a transient error while the locks are still held."""
    assert walk.lock.fencing_token is not None  # a lock with a fence key has one

    def lost() -> bool:
        return walk.lock.lost or users.lost

    pauses = iter(RETRY_PAUSES_S)
    while True:
        # A new number for each attempt: an attempt without a reply may have committed its own.
        number = record_batch(sale_id=walk.sale_id, entries=entries)
        failpoint("fulfill.begun")
        try:
            return write_batch(
                sale_id=walk.sale_id,
                entries=entries,
                fencing_token=walk.lock.fencing_token,
                number=number,
                lost=lost,
                now=timezone.now(),
                refuse_as=refuse_as,
            )
        except DatabaseError as error:
            if not is_transient(error):
                raise
            connection.close()
            pause = next(pauses, None)
            if pause is None or lost():
                raise
            time.sleep(pause)


def _set_aside(walk: _Pass, entry: PendingEntry, users: MultiLock) -> int:
    """Refuse an entry that failed every time (Note [Accepted means ended])."""
    logger.error("order %s of sale %s is set aside", entry.order_id, walk.sale_id)
    try:
        outcome = _write(walk, [entry], users, refuse_as=RefusalReason.FAILED)
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        if is_transient(error):
            raise
        # No row can hold it, not even a refused one, so only the ledger can record the refusal.
        logger.exception("order %s of sale %s cannot have a row", entry.order_id, walk.sale_id)
        outcome = BatchOutcome(releases=[Release(entry, RefusalReason.FAILED)])
    _update_ledger(walk.sale_id, outcome)
    return 1


def _update_ledger(sale_id: int, outcome: BatchOutcome) -> None:
    if outcome.sold_out_early:
        # The ledger's total was too high: correct it before the units are offered again.
        load_sale(sale_id=sale_id)
    release(sale_id=sale_id, releases=outcome.releases)
    failpoint("fulfill.released")
    confirm(sale_id=sale_id, entries=outcome.done, rows=outcome.rows)
    failpoint("fulfill.confirmed")
    FULFILLED.labels("unpaid").inc(len(outcome.done))
    FULFILLED.labels("refused").inc(len(outcome.releases))
    logger.info(
        "sale %s: %s ordered, %s refused", sale_id, len(outcome.done), len(outcome.releases)
    )
