"""V6: V2's transaction under a lock for each buyer in Redis, which all processes share.

A press that finds the lock taken is answered "busy". The forms of the lock, and what breaks each,
are in ``lab/locks.py``. Its name has the buyer and the sale, or, as taught, only the buyer.

Points: "lock held", V2's, "committed", "lock released".
"""

from collections.abc import Callable

from lab.keys import USER_LOCKS, LabKeys
from lab.locks import NamedLock
from lab.points import point
from lab.steps import v2
from lab.steps.step import Answer


def of_buyer_and_sale(sale_id: int, user_id: int) -> str:
    return LabKeys(sale_id).lock_of(user_id)


def of_buyer(sale_id: int, user_id: int) -> str:
    return f"{USER_LOCKS}{user_id}"  # breaks: undersold


def buy(
    *,
    sale_id: int,
    user_id: int,
    lock: type[NamedLock],
    name_of: Callable[[int, int], str] = of_buyer_and_sale,
) -> Answer:
    """Sell a unit under a lock of this form, with this name."""
    held = lock(name_of(sale_id, user_id))
    if not held.take():
        return Answer.BUSY
    try:
        point("lock held")
        answer = v2.buy(sale_id=sale_id, user_id=user_id)
        point("committed")
    finally:
        held.release()
    point("lock released")
    return answer
