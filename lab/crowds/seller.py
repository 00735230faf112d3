"""One selling process: a thread for each lane, and its step's writer beside them.

Everything that a step keeps in memory is kept here, and nowhere else: what one process locks or
queues, no other one sees.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait

from django.db import connection, connections
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lab.answers import Answer
from lab.crowds.crowd import Lane
from lab.crowds.faults import Strike
from lab.crowds.sheet import UNANSWERED, Sheet, now_us
from lab.points import listening
from lab.steps import STEPS, ours
from lab.steps.step import Step, Writer
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded

AWAY = (RedisConnectionError, RedisTimeoutError, LedgerUnavailable, NotLoaded)
"""Redis did not answer: unknown, to be asked again."""

PATIENCE_S = 3.0
"""So long a buyer presses again who is told "busy", or nothing."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1

MEET_S = 0.5
"""So long a press waits for the same buyer's in another lane. One that stays away is dead or stands
still, and is not waited for again.
"""

GLANCE_S = 0.0005
IDLE_ROUNDS = 2
ERROR_LENGTH = 160


@dataclass(frozen=True)
class Shift:
    """What one process is to do.

    ``user_ids`` go by buyers. ``tokens`` go by presses, where the step wants one: a press that is
    repeated sends the same again, as the page does. ``database`` may be that of a test.
    """

    name: str
    step: str
    sale_id: int
    lanes: Sequence[Lane]
    user_ids: Sequence[int]
    clicks: int
    tokens: Sequence[str]
    sheet: Sheet
    strike: Strike | None
    database: str
    log: str


def sell(shift: Shift, errors: Connection) -> None:
    """Sell until all is pressed, then write until nothing is left; tell at the end what failed."""
    _settle_in(shift)
    seller = Seller(shift)
    threads = [threading.Thread(target=seller.walk, args=[lane]) for lane in shift.lanes]
    if seller.writer:
        threads.append(threading.Thread(target=seller.write, args=[seller.writer]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors.send(dict(seller.errors))


def _settle_in(shift: Shift) -> None:
    threading.Thread(target=_end_with_the_race, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the race, which ends this process
    with open(shift.log, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    connections.settings["default"]["NAME"] = shift.database


def _end_with_the_race() -> None:
    """End this process when that of the race has ended, however it did."""
    race = parent_process()
    if race:
        wait([race.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


class Seller:
    """What the threads of a selling process share."""

    def __init__(self, shift: Shift) -> None:
        self.shift = shift
        self.sheet = shift.sheet
        self.step: Step = STEPS[shift.step]
        # Ours has real workers, in processes of their own.
        make_writer = None if self.step.name == "ours" else self.step.writer
        self.writer: Writer | None = make_writer(shift.name) if make_writer else None
        self.errors: Counter[str] = Counter()
        self._is_safe = False

    def walk(self, lane: Lane) -> None:
        """Press everything in a lane, in its order, once the sale has begun."""
        try:
            with self._listening():
                self._open_connections()
                self.sheet.ready[lane.number] = 1
                while not self.sheet.go.value:
                    time.sleep(GLANCE_S)
                self._press_all(lane)
        finally:
            self.sheet.done[lane.number] = 1
            connections.close_all()

    def write(self, writer: Writer) -> None:
        """Do the background half, until all is pressed and nothing comes any more."""
        idle = 0
        with self._listening():
            while not (self.sheet.closing.value and idle >= IDLE_ROUNDS):
                idle = 0 if self._write_once(writer) else idle + 1
        connections.close_all()

    def _listening(self) -> ExitStack:
        stack = ExitStack()
        if self.shift.strike:
            stack.enter_context(listening(partial(self._at_point, self.shift.strike)))
        return stack

    def _open_connections(self) -> None:
        connection.ensure_connection()
        ledger_connection().ping()

    def _press_all(self, lane: Lane) -> None:
        meets = bool(lane.beside)
        for place, press in enumerate(lane.presses):
            meets = meets and self._meet(lane, place)
            self._press(press)
            if self.shift.strike and not self.shift.strike.points:
                self._strike_if_due(self.shift.strike)

    def _meet(self, lane: Lane, place: int) -> bool:
        """Wait for the same buyer's presses in other lanes; False where one did not come."""
        places = self.sheet.places
        places[lane.number] = place + 1
        until = time.monotonic() + MEET_S
        while any(places[other] <= place for other in lane.beside):
            if time.monotonic() > until:
                return False
            time.sleep(GLANCE_S)
        return True

    def _press(self, press: int) -> None:
        """Press until there is an answer that tells something, or patience ends."""
        buy = self._button(press)
        until, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
        while True:
            self.sheet.begin(press)
            state, ask_again = self._try(buy)
            if not ask_again or time.monotonic() > until:
                self.sheet.note(press, state)
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _button(self, press: int) -> Callable[[], Answer]:
        user_id = self.shift.user_ids[press // self.shift.clicks]
        ids = {"sale_id": self.shift.sale_id, "user_id": user_id}
        if self.shift.tokens:
            return partial(ours.buy, **ids, token=self.shift.tokens[press])
        return partial(self.step.buy, **ids)

    def _try(self, buy: Callable[[], Answer]) -> tuple[str, bool]:
        """Return what came of it, and whether to press again."""
        try:
            answer = buy()
        except AWAY as error:
            self._note_error(error)
            return UNANSWERED, True
        except Exception as error:  # to the buyer each of them is the same page: "error"
            self._note_error(error)
            connection.close_if_unusable_or_obsolete()
            return UNANSWERED, False
        return answer, answer is Answer.BUSY

    def _write_once(self, writer: Writer) -> bool:
        try:
            return writer.work_once()
        except Exception as error:  # a writer goes on, whatever it met
            self._note_error(error)
            connection.close_if_unusable_or_obsolete()
            time.sleep(FIRST_PAUSE_S)
            return False

    def _note_error(self, error: Exception) -> None:
        self.errors[f"{type(error).__name__}: {error}"[:ERROR_LENGTH]] += 1

    # --- The fault --------------------------------------------------------------------------------

    def _at_point(self, strike: Strike, name: str) -> None:
        if name in strike.points:
            self._strike_if_due(strike)

    def _strike_if_due(self, strike: Strike) -> None:
        """Strike this process if so many presses are promised, and no process was before."""
        if self._is_safe or self.sheet.promised_presses() < strike.after:
            return
        self._is_safe = True
        if not self.sheet.fate.acquire(block=False):
            return
        self.sheet.struck_pid.value = os.getpid()
        self.sheet.struck_us.value = now_us()
        os.kill(os.getpid(), strike.signum)
        while not self.sheet.resumed.value:  # the signal may take effect a moment later
            time.sleep(GLANCE_S)
