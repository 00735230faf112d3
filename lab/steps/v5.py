"""V5: V4's script decides, a queue in this process takes the order, and a thread writes it.

The buyer is told "queued" before anything is written, so the answer is fast. The queue is memory:
if the process dies, all orders in it are lost, and so is the one being written.

Points: "decided", "queued"; the writer: "taken from the queue", V2's, "committed".
"""

import logging
from queue import Empty, SimpleQueue

from django.db import Error as DatabaseFault

from lab.points import point
from lab.steps import v2
from lab.steps.step import Answer
from lab.steps.v4 import decide

logger = logging.getLogger(__name__)

WAIT_S = 0.1
"""Seconds that the writer waits for an order."""

_waiting: SimpleQueue[tuple[int, int]] = SimpleQueue()
"""Sale and user id of each order that this process has promised.

The course's queue is bounded and blocks buyers when it is full; this one grows.
"""


def buy(*, sale_id: int, user_id: int) -> Answer:
    """Let Redis decide, and promise the order."""
    refusal = decide(sale_id=sale_id, user_id=user_id)  # breaks: stuck
    point("decided")
    if refusal:
        return refusal
    _waiting.put((sale_id, user_id))  # breaks: lost, undersold
    point("queued")
    return Answer.QUEUED


class QueueWriter:
    """The thread that writes the orders of its process, one after the other."""

    def __init__(self, process_name: str) -> None:
        self.process_name = process_name

    def work_once(self) -> bool:
        """Write the oldest order; one that fails is only logged."""
        try:
            sale_id, user_id = _waiting.get(timeout=WAIT_S)
        except Empty:
            return False
        point("taken from the queue")
        try:
            v2.buy(sale_id=sale_id, user_id=user_id)
        except DatabaseFault as error:
            logger.warning("sale %s: the order of %s is not written: %s", sale_id, user_id, error)
        else:
            point("committed")
        return True
