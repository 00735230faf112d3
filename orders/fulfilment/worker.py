"""The back half: what is pending in the ledger becomes rows in the database.

Lock outside, transaction inside, check after locking. The locks in Redis only keep workers out of
each other's way: the row lock, the unique key and the fence decide (``ARCHITECTURE.md``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import Error as DatabaseFault
from django.db import InterfaceError, OperationalError, connection

from locks import LockBusy, LockNotOwned, MultiLock, RedisLock, raise_fence
from orders.fulfilment.batch import LedgerWentBack, LockLost, StaleFence, Verdict, write_batch
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

PASSING_ERRORS = frozenset({1020, 1040, 1053, 1205, 1213, 1290, 1836, 1927})
"""MySQL's numbers for changed rows, too many connections, shutdown, lock waits, deadlocks,
read-only and killed connections; those of its client are 2000 to 2099."""

GATHER_S, GATHER_STEP_S = 0.1, 0.02
"""A small batch waits for more as long as more come, so long at most; and how often it looks."""

RETRY_PAUSES_S = (0.05, 0.2, 0.5)
"""How long to wait before each new try after a passing fault."""


_INTERRUPTIONS = (LockBusy, LockNotOwned, LockLost, StaleFence, LedgerWentBack, NotLoaded)
"""What ends a pass before its time, without anything being wrong with an entry."""


@dataclass
class _Pass:
    """One walk over a sale's pending entries: what it settled and what it left standing.

    Entries that failed before, or that a worker died over, are put off to the end of the walk and
    then taken alone, so that the others do not wait for them.
    """

    settled: int = 0
    skipped: int = 0
    put_off: list[PendingEntry] = field(default_factory=list)


@dataclass(frozen=True)
class _Work:
    """The sale that this worker holds the lock of, and the entries that it takes alone."""

    sale_id: int
    lock: RedisLock
    suspects: set[int]

    @property
    def fencing_token(self) -> int:
        assert self.lock.fencing_token is not None  # given with every lock that has a fence key
        return self.lock.fencing_token


def fulfill_sale(*, sale_id: int) -> bool:
    """Make the pending entries of a sale into rows, oldest first, until none is left to try.

    Returns whether work is left for a fresh task, which the caller publishes. A sale whose lock is
    taken is left alone: its holder looks again after letting go.

    :raises LedgerUnavailable: Redis did not answer; the sweep goes on later.
    :raises django.db.Error: the database did not; the sweep goes on later.
    """
    deadline = time.monotonic() + settings.SECKILL_WORK_MS / 1000
    acknowledge_kick(sale_id=sale_id)
    failpoint("fulfill.started")
    while True:
        try:
            walked = _locked_pass(sale_id=sale_id, deadline=deadline)
        except _INTERRUPTIONS as error:
            return _interrupted(error, sale_id=sale_id)
        stuck = walked.skipped and not walked.settled
        clear_kick(sale_id=sale_id)  # before the last look: who is not seen by it sends a task
        if stuck or not pending_entries(sale_id=sale_id, skip=walked.skipped, count=1):
            return False
        if time.monotonic() >= deadline:
            return set_kick(sale_id=sale_id)


def _interrupted(error: Exception, *, sale_id: int) -> bool:
    """Do what a pass that came to nothing asks for; say whether a fresh task is to go on."""
    if isinstance(error, LockNotOwned | LockLost):
        logger.warning("lost a lock of sale %s; the sweep goes on", sale_id)
    if isinstance(error, StaleFence):
        _raise_fence(sale_id=sale_id, stored=error.stored)
        return set_kick(sale_id=sale_id)
    if not isinstance(error, LedgerWentBack | NotLoaded):
        return False
    if isinstance(error, LedgerWentBack) and (
        error.proven or is_ledger_behind_row(sale_id=sale_id)
    ):
        logger.warning("sale %s: its ledger is older than its row, building it anew", sale_id)
        rebuild_sale(sale_id=sale_id)
    return set_kick(sale_id=sale_id)


def _raise_fence(*, sale_id: int, stored: int) -> None:
    """Let the next token be above the row's; without a ledger, the build sees to that."""
    try:
        at_least = ensure_safe_fence(sale_id=sale_id, stored=stored)
    except NotLoaded:
        return
    with ledger_errors():
        raise_fence(ledger_connection(), LedgerKeys(sale_id).fence, at_least=at_least)


def is_passing(error: Exception) -> bool:
    """Say whether an error is one of connection, lock or read-only: it says nothing of an entry."""
    if isinstance(error, StaleFence | LedgerWentBack | NotLoaded | LockLost | InterfaceError):
        return True
    if not isinstance(error, OperationalError):
        return False
    number = error.args[0] if error.args else None
    # SQLite has no numbers here: what it calls operational is mostly a locked file.
    return not isinstance(number, int) or number in PASSING_ERRORS or 2000 <= number < 2100


def _locked_pass(*, sale_id: int, deadline: float) -> _Pass:
    keys = LedgerKeys(sale_id)
    floor = _epoch(sale_id=sale_id) << FENCE_BITS
    walked = _Pass()
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
            work = _Work(sale_id, lock, read_suspects(sale_id=sale_id))
            while time.monotonic() < deadline and _next_batch(work, walked):
                pass
            while time.monotonic() < deadline and walked.put_off:
                settled = _take(work, [walked.put_off.pop(0)])
                walked.settled += settled
                walked.skipped -= settled
    return walked


def _epoch(*, sale_id: int) -> int:
    try:
        return snapshot(sale_id=sale_id).epoch
    except NotLoaded:
        load_sale(sale_id=sale_id)
        return snapshot(sale_id=sale_id).epoch


def _next_batch(work: _Work, walked: _Pass) -> bool:
    """Take the next entries past those skipped, settle them; False where there are none."""
    entries = _pending(work, walked)
    if walked.settled and entries:  # a burst: none waits alone
        entries = _gathered(work, walked, entries)
    if not entries:
        return False
    now = [entry for entry in entries if entry.order_id not in work.suspects]
    walked.put_off += [entry for entry in entries if entry.order_id in work.suspects]
    settled = _take(work, now) if now else 0
    walked.settled += settled
    walked.skipped += len(entries) - settled
    return True


def _gathered(work: _Work, walked: _Pass, entries: list[PendingEntry]) -> list[PendingEntry]:
    """Wait for more: a batch of a few costs about as much as one of hundreds."""
    until = time.monotonic() + GATHER_S
    while len(entries) < settings.SECKILL_BATCH_UNITS and time.monotonic() < until:
        before = len(entries)
        time.sleep(GATHER_STEP_S)
        entries = _pending(work, walked)
        if len(entries) <= before:
            break
    return entries


def _pending(work: _Work, walked: _Pass) -> list[PendingEntry]:
    return pending_entries(
        sale_id=work.sale_id, skip=walked.skipped, count=settings.SECKILL_BATCH_UNITS
    )


def _take(work: _Work, entries: Sequence[PendingEntry]) -> int:
    """Settle those of these entries whose user key is free; return how many."""
    keys = LedgerKeys(work.sale_id)
    names = {keys.user_lock(entry.user_id): entry.user_id for entry in entries}
    users = MultiLock(ledger_connection(), list(names), lease_ms=settings.SECKILL_LEASE_MS)
    with users.holding_free() as held:
        held_ids = {names[name] for name in held}
        free = [entry for entry in entries if entry.user_id in held_ids]
        return _settle(work, free, users) if free else 0


def _settle(work: _Work, entries: Sequence[PendingEntry], users: MultiLock) -> int:
    """Write these entries and tell the ledger; a batch that fails is halved. Return how many."""
    suspect = entries[0].order_id in work.suspects
    if suspect and _tried_too_often(work, entries[0]):
        return _set_aside(work, entries[0], users)
    try:
        verdict = _write(work, entries, users)
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        clear_batch(sale_id=work.sale_id)  # not what a dead worker leaves behind
        if is_passing(error):
            if suspect:
                undo_attempt(sale_id=work.sale_id, order_id=entries[0].order_id)
            raise
        if len(entries) > 1:
            half = len(entries) // 2
            return _settle(work, entries[:half], users) + _settle(work, entries[half:], users)
        logger.exception("order %s of sale %s failed", entries[0].order_id, work.sale_id)
        if not suspect:
            count_attempt(sale_id=work.sale_id, order_id=entries[0].order_id)
        return 0
    _tell_ledger(work, verdict)
    return len(entries)


def _write(
    work: _Work,
    entries: Sequence[PendingEntry],
    users: MultiLock,
    refuse_as: RefusalReason | None = None,
) -> Verdict:
    """Write one batch, again after a passing fault as long as the locks are still ours."""

    def lost() -> bool:
        return work.lock.lost or users.lost

    pauses = iter(RETRY_PAUSES_S)
    while True:
        # A number for each try: one whose commit got no answer may have used its own.
        number = record_batch(sale_id=work.sale_id, entries=entries)
        failpoint("fulfill.begun")
        try:
            return write_batch(
                sale_id=work.sale_id,
                entries=entries,
                fencing_token=work.fencing_token,
                number=number,
                lost=lost,
                refuse_as=refuse_as,
            )
        except DatabaseFault as error:
            if not is_passing(error):
                raise
            connection.close()
            pause = next(pauses, None)
            if pause is None or lost():
                raise
            time.sleep(pause)


def _tried_too_often(work: _Work, entry: PendingEntry) -> bool:
    # Counted before the try: an entry that kills its process is counted all the same.
    tries = count_attempt(sale_id=work.sale_id, order_id=entry.order_id)
    allowed: int = settings.SECKILL_MAX_TRIES
    return tries > allowed


def _set_aside(work: _Work, entry: PendingEntry, users: MultiLock) -> int:
    """Refuse an entry that failed every time, so that its buyer is told and the unit is free."""
    logger.error("order %s of sale %s is set aside", entry.order_id, work.sale_id)
    try:
        verdict = _write(work, [entry], users, refuse_as=RefusalReason.FAILED)
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        if is_passing(error):
            raise
        # No row can hold it, not even a refused one, so only the ledger can say it.
        logger.exception("order %s of sale %s cannot have a row", entry.order_id, work.sale_id)
        verdict = Verdict(releases=[Release(entry, RefusalReason.FAILED)])
    _tell_ledger(work, verdict)
    return 1


def _tell_ledger(work: _Work, verdict: Verdict) -> None:
    if verdict.sold_out_early:
        # The ledger's total was too high: put it right before the units are offered again.
        load_sale(sale_id=work.sale_id)
    release(sale_id=work.sale_id, releases=verdict.releases)
    failpoint("fulfill.released")
    confirm(sale_id=work.sale_id, entries=verdict.done, rows=verdict.rows)
    failpoint("fulfill.confirmed")
    FULFILLED.labels("unpaid").inc(len(verdict.done))
    FULFILLED.labels("refused").inc(len(verdict.releases))
    logger.info(
        "sale %s: %s ordered, %s refused", work.sale_id, len(verdict.done), len(verdict.releases)
    )
