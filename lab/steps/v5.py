"""V5: V4's script decides, a queue in this process takes the order, and a thread writes it.

The buyer is told "queued" before anything is written, so the answer is fast. The queue is memory:
if the process dies, all orders in it are lost, and so is the one being written.

The course's queue is bounded, by 1,048,576 orders. If such a queue of Java is full, ``add`` throws,
which the course calls; ``offer`` returns false; ``put`` waits. ``v5`` has no bound, and the other
forms have one that a crowd reaches.

Points: "decided", "waits for room" (only ``put``), "queued"; the writer: "taken from the queue",
V2's, "committed".
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full, Queue

from django.db import Error as DatabaseFault

from lab.points import point
from lab.steps import v2
from lab.steps.step import Answer
from lab.steps.v4 import DECIDE, decide

logger = logging.getLogger(__name__)

WAIT_S = 0.1
"""Seconds that the writer waits for an order."""

BOUND = 2
"""Orders that fit into the bounded queue; few, so that you can watch it fill up."""

Order = tuple[int, int]
"""The sale and the user id of an order."""

boundless: Queue[Order] = Queue()
bounded: Queue[Order] = Queue(BOUND)
"""What this process has promised."""


def buy(*, sale_id: int, user_id: int, enqueue: Callable[[Order], None]) -> Answer:
    """Let Redis decide, and promise the order that ``enqueue`` puts into a queue."""
    refusal = decide(sale_id=sale_id, user_id=user_id, script=DECIDE)  # breaks: stuck
    point("decided")
    if refusal:
        return refusal
    enqueue((sale_id, user_id))
    point("queued")
    return Answer.QUEUED


def grow(order: Order) -> None:
    boundless.put(order)  # breaks: lost, undersold


def add(order: Order) -> None:
    """Take an order if there is room.

    :raises queue.Full: the queue is full; the unit stays taken.
    """
    bounded.put_nowait(order)  # breaks: stuck, undersold, errors


def offer(order: Order) -> None:
    """Take an order if there is room; otherwise Java returns false, and nobody looks."""
    with suppress(Full):
        bounded.put_nowait(order)  # breaks: lost, undersold


def put(order: Order) -> None:
    """Wait for room, for as long as the writer takes."""
    if bounded.full():
        point("waits for room")
    bounded.put(order)  # breaks: lost, undersold, stuck


class QueueWriter:
    """The thread that writes the orders of its process, one after the other."""

    waiting = boundless

    def __init__(self, process_name: str) -> None:
        self.process_name = process_name

    def work_once(self) -> bool:
        """Write the oldest order; one that fails is only logged."""
        try:
            sale_id, user_id = self.waiting.get(timeout=WAIT_S)
        except Empty:
            return False
        point("taken from the queue")
        try:
            self._buy(sale_id, user_id)
        except DatabaseFault as error:
            logger.warning("sale %s: the order of %s is not written: %s", sale_id, user_id, error)
        return True

    def _buy(self, sale_id: int, user_id: int) -> None:
        v2.buy(sale_id=sale_id, user_id=user_id)
        point("committed")


class BoundedWriter(QueueWriter):
    waiting = bounded
