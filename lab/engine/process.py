"""A process of a race, as its director sees it."""

from __future__ import annotations

import signal
import time
from collections import defaultdict, deque
from typing import Any

from lab.engine.fork_server import ForkServer, Main


class ProcessEnded(Exception):
    """A process of the race has ended by itself."""


class Process:
    """A forked process: its pipe, and the messages that came on it for each of its actors."""

    def __init__(self, server: ForkServer, main: Main, number: int) -> None:
        self.number = number
        self.is_alive = True
        self._server = server
        self.pid, self._pipe = server.fork(main)
        self._inboxes: defaultdict[str, deque[Any]] = defaultdict(deque)

    def send(self, what: str, actor: str, *details: object) -> None:
        """Tell one of its actors what to do."""
        self._pipe.send((what, actor, *details))

    def receive(self, actor: str = "", *, timeout_s: float = 0) -> Any:
        """Return the next message of this actor, or None if none comes in time.

        :raises ProcessEnded: there will be no more.
        """
        inbox = self._inboxes[actor]
        deadline = time.monotonic() + timeout_s
        while not inbox:
            if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
                return None
            try:
                name, *message = self._pipe.recv()
            except (EOFError, ConnectionError) as error:
                raise ProcessEnded from error
            self._inboxes[name].append(message)
        return inbox.popleft()

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal, and return when it has worked."""
        self._server.signal(self.pid, signum)
        if signum is signal.SIGKILL:
            self.is_alive = False
            self._pipe.close()
