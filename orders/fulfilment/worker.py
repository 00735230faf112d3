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
- An entry that cannot be written is never dropped: it is refused in a row, with its unit back on
  sale, or set aside with its unit until staff decide. Staff may retry either.

Note [Purchases]
~~~~~~~~~~~~~~~~
The units of a purchase (``vouchers/inventory/purchases.py``) were accepted together, and are
written in one transaction: a buyer who wants all or none may never be left with a part. Their
entries have one time and ids side by side, so they are side by side in pending. Whatever cuts a
list of entries cuts it between purchases: the end of a page, the halves of a batch that failed, the
suspects that are written apart, and what is put off, set aside or refused.

Note [Overlap]
~~~~~~~~~~~~~~
During a burst, ledger and database work at the same time (``docs/adr/0028``): one thread sends the
insert of a batch, confirms the batch before, reads and locks the one after, and only then reads the
answer. Each of these states of a pass holds one batch at most:

===========  ====================  =======================  ============  ==================
state        held in               its entries are          its buyers    next state
===========  ====================  =======================  ============  ==================
ahead        ``walk.ahead``        pending                  locked        in work
in work      ``walk.batch``        pending, being written   locked        unconfirmed, done
unconfirmed  ``walk.unconfirmed``  pending, and have rows   locked        done
done         nothing               no longer pending        released      –
===========  ====================  =======================  ============  ==================

===================== ========================================================================
function              transitions
===================== ========================================================================
``_take_batch``       ahead → in work; if none is ahead, entries are read and locked at once
``_beside_insert``    unconfirmed → done; then, behind a full batch, the next full one → ahead
``_report``           after the commit: in work → unconfirmed if it was written whole, refuses
                      nobody and another is ahead; else in work → done
``_end_unconfirmed``  unconfirmed → done, beside the next insert; or before the next report, if
                      that batch had nothing to insert; or at the end of the pass
``_finished``         at the end of the pass, ahead → released; another pass reads it again
===================== ========================================================================

A batch is numbered and recorded alone, in work, and the confirmation of the one before leaves that
record in place. A crash leaves what it may leave without the overlap, twice: rows whose entries are
still pending. So the rules above hold unchanged.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import OperationalError, connection
from django.db.models import Exists

from locks import LockBusy, LockNotOwned, MultiLock, cap_leases, raise_fence
from orders.audience.rule_uses import FirstOrderBusy
from orders.fulfilment.attempts import (
    INTERRUPTIONS,
    NOT_THE_ENTRY,
    BatchTimeout,
    DatabaseAtFault,
    HeldLocks,
    attempt,
    write_control_row,
)
from orders.fulfilment.batch import BatchOutcome, LockLost, StaleBatchNumber, StaleFence
from orders.fulfilment.bulk_insert import nothing
from orders.fulfilment.sale_pass import LockedBatch, SalePass, UnconfirmedBatch
from orders.models import RefusalReason
from seckill_site.failpoints import failpoint
from seckill_site.installation import RestoredDatabase, check_mark, mark
from seckill_site.log_context import log_fields
from seckill_site.metrics import counter
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.batch_journal import back_off, collect_suspects, count_failure, set_aside
from vouchers.inventory.holdings import by_purchase
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors
from vouchers.inventory.rebuild import (
    close_restored,
    ensure_safe_fence,
    load_sale,
    rebuild_sale,
    sale_lock,
)
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
from vouchers.inventory.sale_state import LedgerRemoved, snapshot
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

GATHER_S, GATHER_STEP_S = 0.1, 0.02
"""Wait up to ``GATHER_S`` while entries keep arriving: a batch of a few costs about as much as one
of hundreds."""

RETRY_S = 1.0
"""The pause before an entry that failed is tried again."""

BUSY_S = 0.1
"""The pause before an entry is tried again whose buyer's lock was taken."""

LATE_RENEWAL = 0.6
"""A lock with less than this part of its lease left was not renewed when it was due."""


class CutOff(OperationalError):
    """This process cannot read the database; others may, so the sale itself is not paused."""


def fulfil_sale(*, sale_id: int) -> bool:
    """Turn the pending entries of a sale into rows, oldest first, until none is left to try.

    Return whether work is left for a new task, which the caller publishes. A sale whose lock is
    taken is left alone: its holder looks again after releasing the lock.

    :raises LedgerUnavailable: Redis did not respond; the sweep continues later.
    :raises CutOff: another process should take the task.
    """
    deadline = time.monotonic() + settings.SECKILL_WORK_MS / 1000
    if not acknowledge_kick(sale_id=sale_id):
        return False  # the sweep continues when the backoff is over
    failpoint("fulfill.started")
    try:
        return _fulfil_until(deadline, sale_id=sale_id)
    except CutOff:
        raise
    except RestoredDatabase:
        close_restored()
    except (DatabaseAtFault, DatabaseError) as error:
        _back_off(error, sale_id=sale_id)
    except SeckillVoucher.DoesNotExist:
        logger.error("sale %s has a ledger and no row: was an older backup restored?", sale_id)
    return False


def _fulfil_until(deadline: float, *, sale_id: int) -> bool:
    while True:
        try:
            walk = _locked_pass(sale_id=sale_id, deadline=deadline)
        except INTERRUPTIONS as error:
            return _recover(error, sale_id=sale_id)
        clear_kick(sale_id=sale_id)  # before the last look: later buyers send a task themselves
        if walk.put_off:
            return set_kick(sale_id=sale_id)
        if not pending_entries(sale_id=sale_id, skip=0, count=1):
            return False
        if time.monotonic() >= deadline:
            return set_kick(sale_id=sale_id)


def _back_off(error: Exception, *, sale_id: int) -> None:
    connection.close()
    pause_ms = back_off(sale_id=sale_id, error=error)
    counter("backoffs").inc()
    logger.warning(
        "sale %s: the database takes no orders, next attempt in %s ms: %s", sale_id, pause_ms, error
    )


def _recover(error: Exception, *, sale_id: int) -> bool:
    """Repair what interrupted a pass; return whether a new task should continue."""
    if isinstance(error, LockBusy):
        counter("lock_waits", "sale").inc()
        return _outwait_dead_holder(sale_id=sale_id) and set_kick(sale_id=sale_id)
    if isinstance(error, LockNotOwned | LockLost):
        counter("lost_leases").inc()
        logger.warning("lost a lock of sale %s; the sweep continues", sale_id)
    if isinstance(error, FirstOrderBusy):
        logger.warning(
            "sale %s waits for another sale's first orders; the sweep continues", sale_id
        )
    if isinstance(error, StaleFence):
        _raise_fence(sale_id=sale_id, stored=error.stored)
        return set_kick(sale_id=sale_id)
    if isinstance(error, LedgerRemoved) or not isinstance(error, StaleBatchNumber | NotLoaded):
        return False  # nothing was pending when a ledger was removed
    if isinstance(error, StaleBatchNumber) and (
        error.proven or is_ledger_behind_row(sale_id=sale_id)
    ):
        logger.warning("sale %s: its ledger is older than its row, rebuilding it", sale_id)
        with suppress(LedgerRemoved):  # it came back with an old Redis
            rebuild_sale(sale_id=sale_id)
    return set_kick(sale_id=sale_id)


def _outwait_dead_holder(*, sale_id: int) -> bool:
    """Wait until a lock expires that was not renewed in time; return whether it may be free now.

    A holder that lives renews its lock, and looks for new entries after releasing it.
    """
    name = LedgerKeys(sale_id).sale_lock
    with ledger_errors():
        _cap_leases([name])
        left_ms = ledger_connection().pttl(name)
    if left_ms > LATE_RENEWAL * settings.SECKILL_LEASE_MS:
        return False
    time.sleep(max(left_ms + 1, 0) / 1000)  # it expires within that millisecond
    return True


def _raise_fence(*, sale_id: int, stored: int) -> None:
    """Raise the next fencing token above the row's; without a ledger, the rebuild does that."""
    try:
        at_least = ensure_safe_fence(sale_id=sale_id, stored=stored)
    except NotLoaded:
        return
    with ledger_errors():
        raise_fence(ledger_connection(), LedgerKeys(sale_id).fence, at_least=at_least)


def _locked_pass(*, sale_id: int, deadline: float) -> SalePass:
    identity = _identity(sale_id=sale_id)
    epoch = _epoch(sale_id=sale_id, identity=identity)
    with ledger_errors(), sale_lock(sale_id=sale_id, epoch=epoch) as lock:
        failpoint("fulfill.locked")
        suspects = collect_suspects(sale_id=sale_id)
        walk = SalePass(sale_id, identity, lock, deadline, suspects)
        with _finished(walk):
            while not walk.is_late() and (_take_batch(walk) or _take_put_off(walk)):
                pass
    return walk


@contextmanager
def _finished(walk: SalePass) -> Iterator[None]:
    """At the end, confirm the last batch and let go of the next one; hide no error of the block."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            _end_unconfirmed(walk)
        raise
    else:
        _end_unconfirmed(walk)
    finally:
        if walk.ahead:
            with suppress(LockNotOwned):  # nothing of it was written
                walk.ahead.locks.close()


def _epoch(*, sale_id: int, identity: int) -> int:
    """Return the epoch of the sale's own ledger, which is loaded first if needed."""
    with suppress(NotLoaded):
        ledger = snapshot(sale_id=sale_id)
        if ledger.terms.identity == identity:
            return ledger.epoch
    load_sale(sale_id=sale_id)
    return snapshot(sale_id=sale_id).epoch


def _identity(*, sale_id: int) -> int:
    """Return the identity in the row: a worker without a database never takes the sale's lock.

    :raises RestoredDatabase: the database is marked.
    """
    identities = SeckillVoucher.objects.values_list("identity", Exists(mark()))
    try:
        identity, is_marked = identities.get(pk=sale_id)
    except DatabaseError:
        connection.close()  # the server may only have closed an idle connection
        try:
            identity, is_marked = identities.get(pk=sale_id)
        except DatabaseError as error:
            connection.close()
            raise CutOff(str(error)) from error
    check_mark(is_marked)
    return int(identity)


def _take_batch(walk: SalePass) -> bool:
    """Write the next entries; return False if there are none."""
    batch, walk.ahead = walk.ahead, None
    if batch is None:
        entries = walk.next_entries()
        if walk.settled and entries:  # during a burst only: a single entry does not wait
            entries = _gather(walk, entries)
        if not entries:
            return False
        batch = _lock_free(walk, _put_off_suspects(walk, entries))
    _write(walk, batch)
    return True


def _put_off_suspects(walk: SalePass, entries: Sequence[PendingEntry]) -> list[PendingEntry]:
    """Return the other entries."""
    if not walk.suspects:
        return list(entries)
    others = []
    for units in by_purchase(entries):
        if suspect := walk.suspects.get(units[0].purchase):
            walk.put_off_entries(units, seconds=RETRY_S - suspect.last_ms_ago / 1000)
        else:
            others += units
    return others


def _take_put_off(walk: SalePass) -> bool:
    """Write the next entries that were put off, or wait a little until they are due."""
    if not walk.put_off:
        return False
    due, entries = walk.next_put_off()
    pause_s = due - time.monotonic()
    if pause_s > 0:
        time.sleep(min(pause_s, GATHER_STEP_S))  # new entries do not wait
        return True
    walk.put_off_entries(entries, seconds=RETRY_S)
    _write(walk, _lock_free(walk, entries))
    return True


def _cap_leases(names: Sequence[str]) -> None:
    """Let no lock that another has keep its sale longer than a lease, whoever left it so."""
    cap_leases(ledger_connection(), names, settings.SECKILL_LEASE_MS)


def _gather(walk: SalePass, entries: list[PendingEntry]) -> list[PendingEntry]:
    """Wait while entries keep arriving."""
    until = time.monotonic() + GATHER_S
    while len(entries) < settings.SECKILL_BATCH_UNITS and time.monotonic() < until:
        before = len(entries)
        time.sleep(GATHER_STEP_S)
        entries = walk.next_entries()
        if len(entries) <= before:
            break
    return entries


def _lock_free(walk: SalePass, entries: Sequence[PendingEntry]) -> LockedBatch:
    """Take the free locks of the buyers; put the entries of the others off."""
    keys = LedgerKeys(walk.sale_id)
    names = [keys.user_lock(entry.user_id) for entry in entries]
    unique = list(dict.fromkeys(names))
    users = MultiLock(ledger_connection(), unique, lease_ms=settings.SECKILL_LEASE_MS)
    with ExitStack() as locks:
        held = locks.enter_context(users.holding_free()) if unique else set()
        if len(held) == len(unique):
            return LockedBatch(entries, users, locks.pop_all())
        _cap_leases([name for name in unique if name not in held])
        free = [entry for entry, name in zip(entries, names, strict=True) if name in held]
        busy = [entry for entry, name in zip(entries, names, strict=True) if name not in held]
        walk.put_off_entries(busy, seconds=BUSY_S)
        counter("lock_waits", "buyer").inc(len(busy))
        return LockedBatch(free, users, locks.pop_all())


def _write(walk: SalePass, batch: LockedBatch) -> None:
    """Write a batch, and release its locks unless the next batch will: Note [Overlap]."""
    walk.batch = batch
    walk.held = HeldLocks(walk.sale_id, walk.identity, walk.lock, batch.users)
    with batch.locks:
        if batch.entries:
            _write_and_report(walk, batch.entries)


def _beside_insert(walk: SalePass) -> None:
    """Work on the ledger while this batch is inserted: Note [Overlap]."""
    with ledger_errors():
        _end_unconfirmed(walk)
        full = settings.SECKILL_BATCH_UNITS
        if walk.ahead is None and len(walk.batch.entries) >= full:
            entries = walk.next_entries(beyond=walk.batch.entries)
            if len(entries) >= full:  # otherwise it waits for more
                walk.ahead = _lock_free(walk, _put_off_suspects(walk, entries))


def _end_unconfirmed(walk: SalePass) -> None:
    """Confirm the batch before this one, and release its buyers."""
    before, walk.unconfirmed = walk.unconfirmed, None
    if before:
        with before.locks:
            _update_ledger(walk.sale_id, before.outcome)


def _write_and_report(walk: SalePass, entries: Sequence[PendingEntry]) -> None:
    """Write these entries and update the ledger, halving a batch that fails."""
    suspect = walk.suspects.get(entries[0].purchase)
    if suspect and not walk.database_proved_writable:
        write_control_row(walk.held)
        walk.database_proved_writable = True
    if suspect and (suspect.to_refuse or suspect.failures >= settings.SECKILL_MAX_TRIES):
        with log_fields(order_id=entries[0].order_id):
            _set_aside(walk, by_purchase(entries)[0], for_good=suspect.to_refuse)
        return
    is_whole = entries is walk.batch.entries
    try:
        beside = partial(_beside_insert, walk) if is_whole else nothing
        outcome = attempt(walk.held, entries, beside=beside)
    except NOT_THE_ENTRY:
        raise
    except Exception as error:
        _split(walk, entries, error)
        return
    _end_unconfirmed(walk)  # if there was nothing to insert
    _report(walk, outcome, is_whole=is_whole)
    walk.settle(entries)
    walk.database_proved_writable = True


def _report(walk: SalePass, outcome: BatchOutcome, *, is_whole: bool) -> None:
    """Update the ledger, or leave that to the next batch: Note [Overlap]."""
    if is_whole and walk.ahead and not outcome.releases:
        walk.unconfirmed = UnconfirmedBatch(outcome, walk.batch.locks.pop_all())
    else:
        _update_ledger(walk.sale_id, outcome)


def _split(walk: SalePass, entries: Sequence[PendingEntry], error: Exception) -> None:
    """Write the halves of a batch that failed, or put its entries off if that would take long."""
    purchases = by_purchase(entries)
    if len(purchases) == 1:
        with log_fields(order_id=entries[0].order_id):
            _count_failure(walk, entries)
    elif walk.is_late() or isinstance(error, BatchTimeout):
        walk.suspects = collect_suspects(sale_id=walk.sale_id, add=entries)
        walk.put_off_entries(entries, seconds=0)
    else:
        half = len(purchases) // 2
        for part in (purchases[:half], purchases[half:]):
            _write_and_report(walk, list(chain.from_iterable(part)))


def _count_failure(walk: SalePass, units: Sequence[PendingEntry]) -> None:
    """Count a failure against a purchase that failed alone, unless the database is at fault."""
    order_id = units[0].order_id
    logger.exception("order %s of sale %s failed", order_id, walk.sale_id)
    write_control_row(walk.held)
    failures = count_failure(sale_id=walk.sale_id, order_id=order_id)
    if failures >= settings.SECKILL_MAX_TRIES:
        _set_aside(walk, units)
    else:
        walk.put_off_entries(units, seconds=RETRY_S)


def _set_aside(walk: SalePass, units: Sequence[PendingEntry], *, for_good: bool = False) -> None:
    """Refuse a purchase that failed every time; if no rows can hold it, leave it to staff.

    With ``for_good`` staff have decided: the ledger alone records the refusal if no row can.
    """
    order_id = units[0].order_id
    counter("set_aside").inc()
    try:
        outcome = attempt(walk.held, units, refuse_as=RefusalReason.FAILED)
    except NOT_THE_ENTRY:
        raise
    except Exception:
        write_control_row(walk.held)
        logger.exception("order %s of sale %s cannot have a row", order_id, walk.sale_id)
        if not for_good:
            set_aside(sale_id=walk.sale_id, entries=units)
            walk.settle(units)
            return
        outcome = BatchOutcome(releases=[Release(it, RefusalReason.FAILED) for it in units])
    logger.error("order %s of sale %s is refused: it failed", order_id, walk.sale_id)
    _update_ledger(walk.sale_id, outcome)
    walk.settle(units)


def _update_ledger(sale_id: int, outcome: BatchOutcome) -> None:
    if outcome.sold_out_early:
        # The ledger's total was too high: correct it before the units are offered again.
        load_sale(sale_id=sale_id)
    release(sale_id=sale_id, releases=outcome.releases)
    failpoint("fulfill.released")
    confirm(sale_id=sale_id, entries=outcome.done, rows=outcome.rows, number=outcome.number)
    failpoint("fulfill.confirmed")
    counter("batches").inc()
    counter("fulfilled", "unpaid").inc(len(outcome.done))
    counter("fulfilled", "refused").inc(len(outcome.releases))
    logger.info(
        "sale %s: %s ordered, %s refused", sale_id, len(outcome.done), len(outcome.releases)
    )
