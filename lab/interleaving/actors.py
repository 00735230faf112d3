"""The director's side of a played race: actors that move one at a time, from point to point.

An actor is a thread in a process of its race (``actor_process.py``). It stops unless a method here
lets it continue. The method returns when the actor has stopped again, has ended, or waits for a
lock that another actor holds. Nothing here sleeps: the methods wait for reports from an actor or
the database, at most ``PATIENCE_S``.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lab.engine.database import waits_for_row
from lab.engine.fork_server import Process
from lab.interleaving.timeline import Kind, Timeline

PATIENCE_S = 6.0
"""Longest wait for an actor: longer than the database's lock timeout and any lease of a race."""

LOOK_S = (0.11, 0.2)
"""Seconds of silence before the database is asked whether an actor waits. The server refreshes
that table at most every 0.1 s, and not at all for clients that query more often."""

WAITS = {"waits for the lock": Kind.WAITS_FOR_LOCK, "waits for room": Kind.WAITS_FOR_ROOM}
"""The points at which a step's thread is about to wait for another thread of its process."""


class NeverCame(Exception):
    """An actor did not reach a point of its race; the message names both and its last point."""


class State(StrEnum):
    """The state of an actor between two moves."""

    READY = "has not started"
    MOVES = "moves"
    STANDS = "stands"
    WAITS = "waits for a lock"
    ENDED = "has ended"
    GONE = "was killed"


@dataclass(eq=False)
class Actor:
    """One actor of a race, as its director sees it.

    ``count_row_waits`` counts the actors known to wait for a row.
    """

    name: str
    process: Process
    task: Callable[[], object]
    timeline: Timeline
    count_row_waits: Callable[[], int]
    state: State = State.READY
    at: str = ""
    connection_id: int = 0
    in_statement: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state is State.ENDED

    @property
    def in_row_wait(self) -> bool:
        """Whether the actor is known to wait for a row."""
        return self.state is State.WAITS and self.in_statement

    @property
    def _last(self) -> str:
        return f"and last stood at {self.at!r}" if self.at else "and stood at no point before"

    def until(self, point: str, *, or_end: bool = False) -> bool:
        """Let the actor continue to this point; return False if it must wait for a lock first.

        :param or_end: the actor may also end before
        :raises NeverCame: it ended or was killed before, or did not arrive in time
        """
        while self._move(point):
            if self.state is State.STANDS and self.at == point:
                return True
            if self.has_ended:
                if or_end:
                    return True
                raise NeverCame(f"{self.name} ended before {point!r}, {self._last}")
        return False

    def finish(self) -> None:
        """Let the actor continue to its end.

        :raises NeverCame: it was killed, waits for a lock, or did not end in time
        """
        while self._move("its end"):
            if self.has_ended:
                return
        raise NeverCame(f"{self.name} cannot come to its end: it {self.state}, {self._last}")

    def _move(self, goal: str) -> bool:
        """Let the actor continue until it rests again; return False if it waits for a lock."""
        if self.state is State.READY:
            self._note(time.monotonic(), Kind.BEGINS, str(self.process.number))
            self.process.send("start", self.name, self.task)
        elif self.state is State.STANDS:
            self.process.send("go", self.name)
        elif self.state is not State.WAITS:
            raise NeverCame(f"{self.name} cannot come to {goal!r}: it {self.state}")
        self.state = State.MOVES
        self.come_to_rest(goal)
        if self.state is State.STANDS and self.at in WAITS:
            self._wait(WAITS[self.at])
            self.process.send("go", self.name)
        return self.state is not State.WAITS

    def come_to_rest(self, goal: str) -> None:
        """Record what a moving actor does until it rests.

        :raises NeverCame: it did not come to rest in time
        :raises ProcessEnded: its process ended by itself
        """
        deadline = time.monotonic() + PATIENCE_S
        while self.state is State.MOVES:
            message = self.process.receive(self.name, timeout_s=random.uniform(*LOOK_S))
            if message is not None:
                self._take(*message)
            elif self.in_statement and waits_for_row(
                self.connection_id, known_waiting=self.count_row_waits()
            ):
                self._wait(Kind.WAITS_FOR_ROW)
            elif time.monotonic() > deadline:
                text = f"{self.name} did not come to {goal!r} within {PATIENCE_S:g} s, {self._last}"
                raise NeverCame(text)

    def _take(self, what: str, at: float, *details: Any) -> None:
        """Record one message from the actor."""
        if what == "begins":
            kind, text, connection_id = details
            self.connection_id = connection_id or self.connection_id
            self.in_statement = kind is Kind.STATEMENT
            self._note(at, kind, text)
        elif what == "replied":
            self.in_statement = False
            self.timeline.reply(self.name, at, *details)
        elif what == "stands":
            self.state, self.at = State.STANDS, details[0]
            self._note(at, Kind.POINT, self.at)
        elif what == "acquired":
            self.process.send("go", self.name)
        elif what in ("ended", "failed"):
            self.state = State.ENDED
            self._note(at, Kind.ANSWER if what == "ended" else Kind.FAILS, *details)

    def _wait(self, kind: Kind) -> None:
        """Record that the actor waits, and make it stop as soon as it has the lock."""
        self.process.send("hold", self.name)
        while (message := self.process.receive(self.name, timeout_s=PATIENCE_S)) is not None:
            what, at, *_ = message
            if what == "held":
                self.state = State.WAITS
                self._note(at, kind)
                return
            self._take(*message)
        raise NeverCame(f"{self.name} does not respond to hold")

    def _note(self, at: float, kind: Kind, what: str = "") -> None:
        self.timeline.add(at, (self.name,), kind, what)
