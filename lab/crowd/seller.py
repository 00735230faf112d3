"""One selling process of a crowd race: a thread for each lane, and a thread for its step's writer.

The in-memory state of a step is in this process: no other one sees what it locks or queues.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from django.db import InterfaceError, OperationalError, connection, connections
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lab.crowd.crowd import Crowd, Lane
from lab.crowd.faults import POINTS, SIGNALS, Fault, promises_before
from lab.crowd.sheet import FAILED, UNANSWERED, Sheet, now_us
from lab.instances import Front
from lab.points import listening
from lab.steps import STEPS
from lab.steps.step import Answer, Writer
from lab.waiting import wait_until
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded

AWAY = (RedisConnectionError, RedisTimeoutError, LedgerUnavailable, NotLoaded)
"""Redis did not respond: the outcome is unknown, so the buyer presses again."""

PATIENCE_S = 3.0
"""Seconds for which a buyer keeps pressing after "busy" or no answer."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1

MEET_S = 0.5
"""Seconds that a press waits for the same buyer's press in another lane. A late lane is dead or
frozen; nobody waits for it again.
"""

GLANCE_S = 0.0005
IDLE_ROUNDS = 2
ERROR_LENGTH = 160


@dataclass(frozen=True)
class Assignment:
    """The part of one process in a crowd race.

    With a ``front`` the buyers press through it. ``user_ids`` has one for each buyer. ``tokens``
    has one for each press, if the step needs them: a repeated press sends the same token, as the
    page does.
    """

    name: str
    step: str
    sale_id: int
    crowd: Crowd
    lanes: Sequence[Lane]
    user_ids: Sequence[int]
    tokens: Sequence[str]
    fault: Fault
    front: Front | None
    sheet: Path
    log: Path


def sell(pipe: Connection, *, assignment: Assignment) -> None:
    """Sell until all presses are done, write the remaining orders, and report the errors."""
    with assignment.log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    seller = Seller(assignment)
    threads = [threading.Thread(target=seller.walk, args=[lane]) for lane in assignment.lanes]
    if seller.writer:
        threads.append(threading.Thread(target=seller.write, args=[seller.writer]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send(("", dict(seller.errors)))


class Seller:
    """The state that the threads of a selling process share."""

    def __init__(self, assignment: Assignment) -> None:
        self.errors: Counter[str] = Counter()
        self._assignment = assignment
        self._is_armed = assignment.fault in SIGNALS
        self._sheet = Sheet(assignment.sheet, assignment.crowd)
        self._step = STEPS[assignment.step]
        make_writer = self._step.writer
        self.writer = make_writer(assignment.name) if make_writer else None
        self._writer_has_looked = threading.Event()
        """A consumer runs before the sale starts, and has found nothing to write by then."""

    def walk(self, lane: Lane) -> None:
        """Make the presses of a lane in order, once the sale has started."""
        try:
            with listening(self._strike_if_due):
                connection.ensure_connection()
                ledger_connection().ping()
                if self.writer:
                    self._writer_has_looked.wait()
                self._sheet.ready[lane.number] = 1
                while not self._sheet.flags.go:
                    time.sleep(GLANCE_S)
                self._press_all(lane)
        finally:
            self._sheet.done[lane.number] = 1
            connections.close_all()

    def write(self, writer: Writer) -> None:
        """Run the background half until all presses are done and no order is left."""
        idle = 0
        with listening(self._strike_if_due):
            while not (self._sheet.flags.closing and idle >= IDLE_ROUNDS):
                idle = 0 if self._write_once(writer) else idle + 1
                self._writer_has_looked.set()
        connections.close_all()

    def _press_all(self, lane: Lane) -> None:
        meets = bool(lane.beside)
        for place, press in enumerate(lane.presses):
            meets = meets and self._meet(lane, place)
            self._press(press)
            self._strike_if_due("")

    def _meet(self, lane: Lane, place: int) -> bool:
        """Wait for the same buyer's presses in other lanes; return False if one is late."""
        places = self._sheet.places
        places[lane.number] = place + 1
        return wait_until(
            lambda: all(places[other] > place for other in lane.beside),
            within_s=MEET_S,
            every_s=GLANCE_S,
        )

    def _press(self, press: int) -> None:
        """Press until there is a final answer, at most for ``PATIENCE_S``."""
        buy = self._button(press)
        until, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
        while True:
            self._sheet.begin(press)
            state, ask_again = self._try(buy)
            if not ask_again or time.monotonic() > until:
                self._sheet.note(press, state)
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _button(self, press: int) -> Callable[[], Answer]:
        plan = self._assignment
        user_id = plan.user_ids[plan.crowd.buyer_of(press)]
        token = {"token": plan.tokens[press]} if plan.tokens else {}
        buy = plan.front.buy if plan.front else self._step.buy
        return partial(buy, sale_id=plan.sale_id, user_id=user_id, **token)

    def _try(self, buy: Callable[[], Answer]) -> tuple[str, bool]:
        """Return the answer, and whether to press again."""
        try:
            answer = buy()
        except AWAY as error:
            self._note_error(error)
            return UNANSWERED, True
        except Exception as error:  # the buyer gets the same error page for each
            self._note_error(error)
            connection.close_if_unusable_or_obsolete()
            is_away = isinstance(error, OperationalError | InterfaceError)
            return UNANSWERED if is_away else FAILED, False
        return answer, answer is Answer.BUSY

    def _write_once(self, writer: Writer) -> bool:
        try:
            return writer.work_once()
        except Exception as error:  # a writer continues after any error
            self._note_error(error)
            connection.close_if_unusable_or_obsolete()
            time.sleep(FIRST_PAUSE_S)
            return False

    def _note_error(self, error: Exception) -> None:
        self.errors[f"{type(error).__name__}: {error}"[:ERROR_LENGTH].rstrip(": ")] += 1

    # --- The fault --------------------------------------------------------------------------------

    def _strike_if_due(self, point: str) -> None:
        """Apply the fault if this process is the first of the race to reach one of its points."""
        points = {""} if self._step.is_ours else POINTS
        if not self._is_armed or point not in points:
            return
        if self._sheet.promises() < promises_before(self._assignment.crowd.stock):
            return
        self._is_armed = False
        if not self._sheet.claim_strike():
            return
        self._sheet.flags.struck_pid = os.getpid()
        self._sheet.flags.struck_us = now_us()
        os.kill(os.getpid(), SIGNALS[self._assignment.fault])
        while not self._sheet.flags.resumed:  # the signal may take effect a moment later
            time.sleep(GLANCE_S)
