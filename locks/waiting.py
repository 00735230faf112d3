"""How a lock waits for its turn: in a queue of this process, woken by the release itself.

Threads of one process that wait for the same lock stand in a room, first come first served, and
only the first of them asks Redis. It is woken by the release: directly where a thread of this
process let go, else by a message (pub/sub). However many wait, a process has one subscription for
each Redis server. A message may be lost and a holder may die, so the first also looks again by
itself, when the holder's lease is over and at least once a second.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from redis import Redis

from locks.listening import Line
from locks.protocol import NOT_WAITING, Waiting
from locks.scripts import pass_on
from locks.servers import server_of

LOOK_AGAIN_S = 1.0
"""How long one who waits trusts that a message will come."""

STAY_S = 3 * LOOK_AGAIN_S
"""How long a note of waiting counts in Redis; whoever still waits renews it sooner."""

GRACE_S = 0.1
"""How much longer than the wait itself it counts at least."""

LINGER_S = 1.0
"""How long a subscription outlives the last one who waited."""

DEAF_S = 0.5
"""How long after a broken subscription no new one is tried."""

PAUSE_S = (0.002, 0.1)
"""The first and the longest pause of those who only ask; each is about twice the one before."""


class Busy(NamedTuple):
    """Why a lock was not had: what to wait for, and how long that lasts at most."""

    topic: str
    left_ms: int = 0


Ask = Callable[[Waiting], Busy | None]
"""Asks Redis once for a lock; nothing comes back where it was granted."""


class Turn(NamedTuple):
    """How one who asks is to wait.

    ``topic`` is what the release of its lock is known by. A ``shared`` lock, once had, lets the
    next one ask too. ``at_once`` asks before those who wait already, for one who has a claim.
    ``opening`` is what the first question notes of it.
    """

    topic: str
    wait_ms: int
    shared: bool = False
    at_once: bool = False
    opening: Waiting = NOT_WAITING


def take_in_turn(client: Redis, ask: Ask, turn: Turn) -> bool:
    """Ask until the lock is granted or the wait is over; says whether it was."""
    until = time.monotonic() + turn.wait_ms / 1000
    board = _switchboard(client)
    busy: Busy | None = Busy(turn.topic)
    if turn.wait_ms <= 0 or turn.at_once or not board.count(turn.topic):
        busy = ask(turn.opening if turn.wait_ms > 0 else NOT_WAITING)
    while busy is not None and time.monotonic() < until:
        waited_for = busy.topic
        with board.place(client, waited_for, shared=turn.shared) as place:
            busy = place.ask_in_turn(ask, until)
        if busy is not None and busy.topic != waited_for and pass_on(client, waited_for):
            board.wake([waited_for])
    return busy is None


def take_by_asking(ask: Ask, *, wait_ms: int) -> bool:
    """Do the same without subscription: ask again and again, ever more rarely."""
    until = time.monotonic() + wait_ms / 1000
    pause_s, longest_s = PAUSE_S
    while ask(_note_of_one(until - time.monotonic()) if wait_ms > 0 else NOT_WAITING) is not None:
        left_s = until - time.monotonic()
        if left_s <= 0:
            return False
        # At random, so that those who wait do not ask in step.
        time.sleep(min(left_s, random.uniform(pause_s / 2, pause_s)))
        pause_s = min(2 * pause_s, longest_s)
    return True


def wake_here(client: Redis, topics: Iterable[str]) -> None:
    """Wake the first thread of this process that waits for each of these."""
    _switchboard(client).wake(topics)


@dataclass(eq=False)
class Place:
    """One thread's place in a room."""

    board: Switchboard
    client: Redis
    topic: str
    had: bool = False
    _gate: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._gate.acquire()

    def ask_in_turn(self, ask: Ask, until: float) -> Busy | None:
        """Ask whenever it is this thread's turn, until granted, told of another lock, or late."""
        while True:
            left_s = until - time.monotonic()
            pause_s = min(left_s, LOOK_AGAIN_S)
            if left_s <= 0 or self.board.is_first(self):
                heard = left_s > 0 and self.board.listen(self.client, patience_s=left_s)
                busy = ask(self._note(until - time.monotonic()))
                self.had = busy is None
                if busy is None or busy.topic != self.topic or left_s <= 0:
                    return busy
                pause_s = min(pause_s, _pause_s(busy, heard=heard))
            self._gate.acquire(timeout=max(0, pause_s))

    def wake(self) -> None:
        """Let the thread go on, now or when it next would wait; the board's mutex is held."""
        if self._gate.locked():
            self._gate.release()

    def _note(self, left_s: float) -> Waiting:
        behind = self.board.count(self.topic) - 1
        if left_s > 0:
            return Waiting(behind + 1, behind, _stay_ms(left_s))
        # Those who end together would overwrite each other: what they noted ends soon by itself.
        return NOT_WAITING if behind else Waiting(0, 0, 1)


def _note_of_one(left_s: float) -> Waiting:
    return Waiting(1, 0, _stay_ms(left_s)) if left_s > 0 else Waiting(0, 0, 1)


def _stay_ms(left_s: float) -> int:
    return int(min(STAY_S, left_s + GRACE_S) * 1000)


def _pause_s(busy: Busy, *, heard: bool) -> float:
    if not heard:
        return random.uniform(PAUSE_S[1] / 2, PAUSE_S[1])
    # A lease that is over at the very millisecond is not over yet; a key without end has none.
    return busy.left_ms / 1000 + 0.001 if busy.left_ms >= 0 else LOOK_AGAIN_S


class Switchboard:
    """The rooms of this process for one Redis server, and its line to hear of releases."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._rooms: dict[str, deque[Place]] = {}
        self._line: Line | None = None
        self._deaf_until = self._quiet_since = 0.0

    @contextmanager
    def place(self, client: Redis, topic: str, *, shared: bool) -> Iterator[Place]:
        """Stand in the room of a topic, behind those who came first."""
        place = Place(self, client, topic)
        try:
            with self._mutex:
                self._rooms.setdefault(topic, deque()).append(place)
            yield place
        finally:
            self._leave(place, wake_next=shared or not place.had)

    def is_first(self, place: Place) -> bool:
        """Say whether it is this one's turn to ask."""
        with self._mutex:
            return self._rooms[place.topic][0] is place

    def count(self, topic: str) -> int:
        """Return how many wait for a topic."""
        with self._mutex:
            return len(self._rooms.get(topic, ()))

    def wake(self, topics: Iterable[str]) -> None:
        """Wake the first in the room of each topic."""
        with self._mutex:
            for topic in topics:
                if room := self._rooms.get(topic):
                    room[0].wake()

    def listen(self, client: Redis, *, patience_s: float) -> bool:
        """See to it that messages are heard; false where there is no subscription to be had."""
        with self._mutex:
            if self._line is None:
                if time.monotonic() < self._deaf_until:
                    return False
                line = Line(client, heard=self.wake, ends=self._ends, ended=self._ended)
                line.start()
                self._line = line
            line = self._line
        return line.is_subscribed(patience_s=patience_s)

    def _ends(self) -> bool:
        """Say whether the line may end: nobody waits, or did a moment ago. Then it is gone."""
        with self._mutex:
            if self._rooms or time.monotonic() - self._quiet_since < LINGER_S:
                return False
            self._line = None
            return True

    def _ended(self) -> None:
        """Let those who wait ask by themselves for a while: the line broke."""
        with self._mutex:
            self._line, self._deaf_until = None, time.monotonic() + DEAF_S
            for room in self._rooms.values():
                room[0].wake()

    def _leave(self, place: Place, *, wake_next: bool) -> None:
        with self._mutex:
            room = self._rooms.get(place.topic, deque())
            if place in room:  # not where an exception came in between
                room.remove(place)
            if not room:
                self._rooms.pop(place.topic, None)
                self._quiet_since = time.monotonic()
            elif wake_next:
                # It may have been woken for a lock that it then did not take.
                room[0].wake()


def _switchboard(client: Redis) -> Switchboard:
    server = server_of(client)
    board = _boards.get(server)
    return board if board is not None else _boards.setdefault(server, Switchboard())


def _start_afresh() -> None:
    """Forget the parent's rooms and lines, which a forked child does not have."""
    global _boards
    _boards = {}


_boards: dict[Hashable, Switchboard] = {}
os.register_at_fork(after_in_child=_start_afresh)
