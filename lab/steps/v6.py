"""V6: V2's transaction under a lock for each buyer in Redis, which all processes share.

Who finds it taken is sent away: "busy". The four forms of the lock, and what breaks each, are in
``lab/locks.py``.

Points: "lock held", V2's, "committed", "lock released".
"""

from __future__ import annotations

from collections.abc import Callable

from lab.answers import Answer
from lab.keys import LabKeys
from lab.locks import ExpiringLock, Lock, OwnedLock, SetnxLock, WatchdogLock
from lab.points import point
from lab.steps import v2


def buy_setnx(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit under a lock that only its holder ends."""
    return _buy(sale_id, user_id, SetnxLock)


def buy_expiring(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit under a lock that ends by itself, and that anybody deletes."""
    return _buy(sale_id, user_id, ExpiringLock)


def buy_owned(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit under a lock that ends by itself, and that only its holder deletes."""
    return _buy(sale_id, user_id, OwnedLock)


def buy_watchdog(*, sale_id: int, user_id: int) -> Answer:
    """Sell a unit under a lock that is renewed while its process runs."""
    return _buy(sale_id, user_id, WatchdogLock)


def _buy(sale_id: int, user_id: int, make: Callable[[str], Lock]) -> Answer:
    lock = make(LabKeys(sale_id).lock_of(user_id))
    if not lock.take():
        return Answer.BUSY
    try:
        point("lock held")
        answer = v2.buy(sale_id=sale_id, user_id=user_id)
        point("committed")
    finally:
        lock.release()
    point("lock released")
    return answer
