"""V6: V2's transaction under a lock for each buyer in Redis, which all processes share.

A press that finds the lock taken is answered "busy". The forms of the lock, and what breaks each,
are in ``lab/locks.py``.

Points: "lock held", V2's, "committed", "lock released".
"""

from lab.keys import LabKeys
from lab.locks import NamedLock
from lab.points import point
from lab.steps import v2
from lab.steps.step import Answer


def buy(*, sale_id: int, user_id: int, lock: type[NamedLock]) -> Answer:
    """Sell a unit under a lock of this form."""
    held = lock(LabKeys(sale_id).lock_of(user_id))
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
