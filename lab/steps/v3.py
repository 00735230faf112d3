"""V3: V2's transaction under a lock in the memory of this process.

A lock for each buyer separates two presses that reach the same process; another process has its own
locks. It must be held until the commit: released inside the transaction, it lets the next press
count before the order is visible. And it replaces no count: without one, two presses of a buyer
take turns, and both buy.

Points: "waits for the lock" (only if it is taken), "lock held", V2's, then "committed"; with
``buy_locked_inside``, "lock released" comes before "committed". ``buy_uncounted`` passes V1's.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from django.db import transaction

from lab.points import point
from lab.steps import v1, v2
from lab.steps.step import Answer

_locks: defaultdict[int, Lock] = defaultdict(Lock)
"""This process's locks by user id; none is ever removed."""

_lookup_lock, _one_lock = Lock(), Lock()


def lock_of_buyer(user_id: int) -> Lock:
    with _lookup_lock:
        return _locks[user_id]  # breaks: doubled


def lock_of_all(user_id: int) -> Lock:
    return _one_lock  # breaks: delayed, doubled


class Key(str):
    """A string with a lock, as every object of Java has one; an equal string has another."""

    def __init__(self, _: str) -> None:
        self.lock = Lock()


def lock_of_equal_key(user_id: int) -> Lock:
    return Key(str(user_id)).lock  # breaks: doubled


def buy(*, sale_id: int, user_id: int, lock_of: Callable[[int], Lock]) -> Answer:
    """Sell a unit while this process handles no other order under the same lock."""
    with _held(lock_of(user_id)):
        answer = v2.buy(sale_id=sale_id, user_id=user_id)
        point("committed")
    return answer


def buy_locked_inside(*, sale_id: int, user_id: int) -> Answer:
    """Do what ``buy`` does, but release the lock before the transaction ends."""
    with transaction.atomic():
        with _held(lock_of_buyer(user_id)):  # breaks: doubled
            answer = v2.order_once(sale_id=sale_id, user_id=user_id)
        point("lock released")
    point("committed")
    return answer


def buy_bypassing(*, sale_id: int, user_id: int) -> Answer:
    """Do what ``buy`` does, but call the function inside the decorated one: no transaction starts.

    Each statement is committed by itself.
    """
    with _held(lock_of_buyer(user_id)):
        return v2.order_once(sale_id=sale_id, user_id=user_id)  # breaks: undersold


def buy_uncounted(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit under the buyer's lock, whatever the buyer already has."""
    with _held(lock_of_buyer(user_id)):  # breaks: doubled
        return v1.buy(sale_id=sale_id, user_id=user_id, take=v1.take_if_any_left)


@contextmanager
def _held(lock: Lock) -> Iterator[None]:
    if not lock.acquire(blocking=False):
        point("waits for the lock")
        lock.acquire()
    try:
        point("lock held")
        yield
    finally:
        lock.release()
