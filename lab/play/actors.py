"""The director's side of a played race: actors that move one at a time, from point to point.

An actor is a thread of a process that was made for it (``performing.py``). It stands still unless
a method here lets it go on, and the method returns when it stands again, has ended, or waits for a
lock that another actor has. Nothing here waits for a time: only for what an actor or the database
says, and at most ``PATIENCE_S`` for that.
"""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from lab.play.backstage import Backstage
from lab.play.row_locks import waits_for_row
from lab.play.timeline import Kind, Timeline

PATIENCE_S = 6.0
"""More than the database lets anybody wait for a row, and than any lease of a race."""

LOOK_S = (0.11, 0.2)
"""How long to hear nothing of an actor before asking the database whether it waits: the server
refreshes that table once in 0.1 s, and not at all for those who ask more often."""

WAITS_FOR_LOCK = "waits for the lock"
"""The point at which a step's thread is about to wait for another thread of its process."""


class NeverCame(Exception):
    """An actor did not come where a race wants it; names both, and where it was last."""


class Rest(StrEnum):
    """How an actor can be while nobody moves."""

    READY = "has not begun"
    MOVES = "moves"
    STANDS = "stands"
    WAITS = "waits for a lock"
    ENDED = "has ended"
    GONE = "was killed"


class Process:
    """A process of a race: its pipe, and what has come on it for each of its actors."""

    def __init__(self, number: int, backstage: Backstage, *, lease_ms: int) -> None:
        self.number = number
        self.lease_ms = lease_ms
        self.alive = True
        self._backstage = backstage
        self._pid, self._pipe = backstage.fork()
        self._inboxes: defaultdict[str, deque[Any]] = defaultdict(deque)
        self.order("lease", "", lease_ms)

    def order(self, what: str, actor: str, *details: object) -> None:
        """Tell it what one of its actors is to do."""
        self._pipe.send((what, actor, *details))

    def hear(self, actor: str, timeout_s: float) -> Any:
        """Return the next message of this actor, or None where none comes in time.

        :raises NeverCame: the process has ended
        """
        inbox = self._inboxes[actor]
        deadline = time.monotonic() + timeout_s
        while not inbox:
            if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
                return None
            try:
                name, *message = self._pipe.recv()
            except (EOFError, ConnectionError) as error:
                raise NeverCame(f"{actor}: process {self.number} has ended by itself") from error
            self._inboxes[name].append(message)
        return inbox.popleft()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and return when that has worked."""
        self._backstage.signal(self._pid, number)
        if number is signal.SIGKILL:
            self.alive = False
            self._pipe.close()


class Actor:
    """One actor of a race, as its director sees it."""

    def __init__(
        self,
        name: str,
        process: Process,
        task: Callable[[], object],
        timeline: Timeline,
        others_waiting: Callable[[], int],
    ) -> None:
        """Put it on stage; ``others_waiting`` counts the actors known to wait for a row."""
        self.name = name
        self.process = process
        self.rest = Rest.READY
        self.at = ""
        self.connection_id = 0
        self._task = task
        self._timeline = timeline
        self._others_waiting = others_waiting
        self._in_statement = False

    @property
    def has_ended(self) -> bool:
        return self.rest is Rest.ENDED

    @property
    def in_row_wait(self) -> bool:
        """Whether it is known to wait for a row."""
        return self.rest is Rest.WAITS and self._in_statement

    @property
    def _last(self) -> str:
        return f"and last stood at {self.at!r}" if self.at else "and stood at no point before"

    def until(self, point: str, *, or_end: bool = False) -> bool:
        """Let it go on to this point; False where it has to wait for a lock on its way.

        :param or_end: it may also end before
        :raises NeverCame: it ended or was killed before, or nothing came of it in time
        """
        while self._moves(point):
            if self.rest is Rest.STANDS and self.at == point:
                return True
            if self.rest is Rest.ENDED:
                if or_end:
                    return True
                raise NeverCame(f"{self.name} ended before {point!r}, {self._last}")
        return False

    def finish(self) -> None:
        """Let it go on to its end.

        :raises NeverCame: it was killed, waits for a lock, or nothing came of it in time
        """
        while self._moves("its end"):
            if self.rest is Rest.ENDED:
                return
        raise NeverCame(f"{self.name} cannot come to its end: it {self.rest}, {self._last}")

    def _moves(self, goal: str) -> bool:
        """Let it go on to wherever it rests next; False where that is a wait."""
        self._set_off(goal)
        self._come_to_rest(goal)
        if self.rest is Rest.STANDS and self.at == WAITS_FOR_LOCK:
            self._wait(Kind.WAITS_FOR_LOCK)
            self.process.order("go", self.name)
        return self.rest is not Rest.WAITS

    def _set_off(self, goal: str) -> None:
        if self.rest is Rest.READY:
            self._note(time.monotonic(), Kind.BEGINS, str(self.process.number))
            self.process.order("begin", self.name, self._task)
        elif self.rest is Rest.STANDS:
            self.process.order("go", self.name)
        elif self.rest is not Rest.WAITS:
            raise NeverCame(f"{self.name} cannot come to {goal!r}: it {self.rest}")
        self.rest = Rest.MOVES

    def _come_to_rest(self, goal: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.rest is Rest.MOVES:
            message = self.process.hear(self.name, random.uniform(*LOOK_S))
            if message is not None:
                self._take(*message)
            elif self._in_statement and self._waits_for_row():
                self._wait(Kind.WAITS_FOR_ROW)
            elif time.monotonic() > deadline:
                text = f"{self.name} did not come to {goal!r} within {PATIENCE_S:g} s, {self._last}"
                raise NeverCame(text)

    def _waits_for_row(self) -> bool:
        return waits_for_row(self.connection_id, besides=self._others_waiting())

    def _take(self, what: str, at: float, *details: Any) -> None:
        """Note one message of it."""
        if what == "begins":
            kind, words, connection_id = details
            self.connection_id = connection_id or self.connection_id
            self._in_statement = kind is Kind.STATEMENT
            self._note(at, kind, words)
        elif what == "hears":
            self._in_statement = False
            self._timeline.reply(self.name, at, *details)
        elif what == "stands":
            self.rest, self.at = Rest.STANDS, details[0]
            self._note(at, Kind.POINT, self.at)
        elif what == "has it":
            self.process.order("go", self.name)
        elif what in ("ended", "failed"):
            self.rest = Rest.ENDED
            self._note(at, Kind.ANSWER if what == "ended" else Kind.FAILS, *details)

    def _wait(self, kind: Kind) -> None:
        """Note that it waits, and let it stand as soon as it has what it waits for."""
        self.process.order("hold", self.name)
        while (message := self.process.hear(self.name, PATIENCE_S)) is not None:
            what, at, *_ = message
            if what == "held":
                self.rest = Rest.WAITS
                self._note(at, kind)
                return
            self._take(*message)
        raise NeverCame(f"{self.name} does not hear that it is to stand")

    def _note(self, at: float, kind: Kind, what: str = "") -> None:
        self._timeline.add(at, (self.name,), kind, what)
