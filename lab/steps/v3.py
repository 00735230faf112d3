"""V3: V2's transaction under a lock for each buyer in the memory of this process.

The lock separates two presses that reach the same process; another process has its own locks. It
must be held until the commit: released inside the transaction, it lets the next press count before
the order is visible.

Points: "waits for the lock" (only if it is taken), "lock held", V2's, then "committed"; in the
second form "lock released" comes before "committed".
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from lab.points import point
from lab.steps import v2
from lab.steps.step import Answer

_locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
"""This process's locks by user id; none is ever removed."""

_lookup_lock = threading.Lock()


def buy(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit while this process handles no other order of the buyer."""
    with _locked(user_id):  # breaks: doubled
        answer = v2.buy(sale_id=sale_id, user_id=user_id)
        point("committed")
    return answer


def buy_locked_inside(*, sale_id: int, user_id: int) -> Answer:
    """Do what ``buy`` does, but release the lock before the transaction ends."""
    with transaction.atomic():
        with _locked(user_id):  # breaks: doubled
            answer = v2.order_once(sale_id=sale_id, user_id=user_id)
        point("lock released")
    point("committed")
    return answer


@contextmanager
def _locked(user_id: int) -> Iterator[None]:
    with _lookup_lock:
        lock = _locks[user_id]
    if not lock.acquire(blocking=False):
        point("waits for the lock")
        lock.acquire()
    try:
        point("lock held")
        yield
    finally:
        lock.release()
