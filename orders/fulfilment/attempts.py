"""One attempt at a batch under the locks of a worker, and who is at fault when it fails.

Note [Who is at fault]
~~~~~~~~~~~~~~~~~~~~~~
The number of an error does not say whether an entry or the database is at fault: a full disk and a
broken row may look the same. A control write does (``write_control``): the same statements for the
same sale, for no buyer. After each failure:

- If the control write fails too, the database is at fault. Nothing is counted against any entry.
  The workers leave the sale alone for a while, longer after each failure, and ``/readyz`` says so.
- If it succeeds, the batch is tried once more and then halved. An entry that fails alone is put
  off, so that others can proceed, and tried again after a second. A killed process or a time limit
  counts as a failure, too. After ``SECKILL_MAX_TRIES`` failures the entry is set aside.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from celery.exceptions import SoftTimeLimitExceeded
from django.db import DEFAULT_DB_ALIAS, connection, connections

from locks import LockBusy, LockNotOwned, MultiLock, RedisLock
from orders.audience.rule_uses import FirstOrderBusy
from orders.fulfilment.batch import (
    BatchOutcome,
    LockLost,
    StaleBatchNumber,
    StaleFence,
    write_batch,
    write_control,
)
from orders.fulfilment.bulk_insert import nothing
from orders.models import RefusalReason
from seckill_site.failpoints import failpoint
from seckill_site.metrics import counter
from vouchers.inventory.batch_journal import clear_batch, record_batch
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.reservations import PendingEntry

BATCH_LIMIT_S = 4.0
"""The longest that one attempt at a batch may take."""


class DatabaseAtFault(Exception):
    """A control write failed too: Note [Who is at fault]."""


class BatchTimeout(Exception):
    """An attempt at a batch took longer than ``BATCH_LIMIT_S``."""


INTERRUPTIONS = (
    LockBusy,
    LockNotOwned,
    LockLost,
    StaleFence,
    StaleBatchNumber,
    NotLoaded,
    FirstOrderBusy,
)
"""Errors that end a pass early and tell how to go on."""

NOT_THE_ENTRY = (SoftTimeLimitExceeded, LedgerUnavailable, DatabaseAtFault, *INTERRUPTIONS)
"""Errors that say nothing about the entries of a batch."""


@dataclass(frozen=True)
class HeldLocks:
    """What a worker holds while it writes: the sale's lock and the locks of the buyers."""

    sale_id: int
    identity: int
    sale: RedisLock
    users: MultiLock

    @property
    def fencing_token(self) -> int:
        assert self.sale.fencing_token is not None  # a lock with a fence key has one
        return self.sale.fencing_token

    def lost(self) -> bool:
        """Return whether one of them was lost."""
        return self.sale.lost or self.users.lost


def attempt(
    held: HeldLocks,
    entries: Sequence[PendingEntry],
    refuse_as: RefusalReason | None = None,
    beside: Callable[[], object] = nothing,
) -> BatchOutcome:
    """Write one batch, and once more if it fails although the database takes a control write.

    The second attempt is for what passes by itself: a deadlock, a killed connection, a lost answer.
    Each attempt calls ``beside`` while the database inserts; its errors are in ``NOT_THE_ENTRY``.

    :raises DatabaseAtFault: the control write failed, too.
    :raises BatchTimeout: it took too long.
    :raises Exception: it failed twice; an entry is at fault.
    """
    try:
        return _attempt_once(held, entries, refuse_as, beside)
    except (BatchTimeout, *NOT_THE_ENTRY):
        raise
    except Exception:
        counter("retries").inc()
        write_control_row(held)
    return _attempt_once(held, entries, refuse_as, beside)


def write_control_row(held: HeldLocks) -> None:
    """Write for no buyer, to find out who is at fault.

    :raises DatabaseAtFault: that failed, too.
    """
    number = record_batch(sale_id=held.sale_id, entries=[], identity=held.identity)
    try:
        write_control(
            sale_id=held.sale_id,
            fencing_token=held.fencing_token,
            number=number,
            lost=held.lost,
        )
    except NOT_THE_ENTRY:
        raise
    except Exception as error:
        connection.close()
        raise DatabaseAtFault(str(error)) from error


def _attempt_once(
    held: HeldLocks,
    entries: Sequence[PendingEntry],
    refuse_as: RefusalReason | None,
    beside: Callable[[], object],
) -> BatchOutcome:
    # A new number for each attempt: an attempt without a reply may have committed its own.
    number = record_batch(sale_id=held.sale_id, entries=entries, identity=held.identity)
    failpoint("fulfill.begun")
    try:
        with _time_limit():
            return write_batch(
                sale_id=held.sale_id,
                entries=entries,
                fencing_token=held.fencing_token,
                number=number,
                lost=held.lost,
                refuse_as=refuse_as,
                beside=beside,
            )
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        clear_batch(sale_id=held.sale_id)  # a record that stays would mean a dead worker
        if not isinstance(error, NOT_THE_ENTRY):
            connection.close()
        if isinstance(error, BatchTimeout):  # it may have interrupted Django amid a change of state
            del connections[DEFAULT_DB_ALIAS]
        raise


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise BatchTimeout in the ``with`` block if it takes too long; in a main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise BatchTimeout(f"no end within {BATCH_LIMIT_S:.0f} s")

    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, BATCH_LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
