"""The actors' side of a played race: threads of one process that move only when they are told to.

The process gets orders from its director on a pipe: ``begin`` an actor with its task, let it
``go``, or ``hold`` one that waits for a lock, so that it stands as soon as it has that. Everything
that an actor does goes back on the same pipe, as ``(actor, what, monotonic time, details…)``. An
actor stands still at every point until it is let go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from celery import current_app
from django.conf import settings

from lab import locks
from lab.interleaving.timeline import Kind
from lab.interleaving.tracing import connection_id, trace_process, traced
from lab.points import listening

Task = Callable[[], object]
Send = Callable[..., None]


class Performer:
    """One actor: a thread that does one task, from point to point."""

    def __init__(self, name: str, task: Task, send: Send) -> None:
        self._name = name
        self._task = task
        self._send = send
        self._cue = threading.Semaphore(0)
        self._held = False
        threading.Thread(target=self._perform, name=name, daemon=True).start()

    def go(self) -> None:
        """Let it continue."""
        self._cue.release()

    def hold(self) -> None:
        """Let it stand as soon as it has what it waits for."""
        self._held = True
        self._tell("held")

    def begin(self, kind: Kind, what: str) -> None:
        """Report a statement or command before it is sent."""
        self._stand_if_held()
        self._tell("begins", kind, what, connection_id() if kind is Kind.STATEMENT else 0)

    def end(self, reply: str) -> None:
        """Report a reply."""
        self._tell("hears", reply)
        self._stand_if_held()

    def _perform(self) -> None:
        try:
            with traced(self), listening(self._stand):
                answer = self._task()
        except Exception as error:
            self._tell("failed", f"{type(error).__name__}: {error}".rstrip(": "))
        else:
            self._tell("ended", answer if isinstance(answer, str) else "")

    def _stand(self, name: str) -> None:
        self._held = False
        self._tell("stands", name)
        self._cue.acquire()

    def _stand_if_held(self) -> None:
        if self._held:
            self._held = False
            self._tell("has it")
            self._cue.acquire()

    def _tell(self, what: str, *details: object) -> None:
        self._send(self._name, what, time.monotonic(), *details)


def perform(pipe: Connection, *, lease_ms: int) -> None:
    """Do what the director says, until it hangs up; locks of this process have this lease."""
    locks.LEASE_MS = settings.SECKILL_LEASE_MS = lease_ms
    # The messages of a race reach nobody: the director says who works next.
    current_app.conf.update(broker_url="memory://")
    trace_process()
    guard = threading.Lock()

    def send(*message: object) -> None:
        with guard:
            pipe.send(message)

    performers: dict[str, Performer] = {}
    while True:
        try:
            order, name, *details = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if order == "begin":
            performers[name] = Performer(name, details[0], send)
        elif order == "go":
            performers[name].go()
        elif order == "hold":
            performers[name].hold()
