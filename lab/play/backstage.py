"""Where the processes of a played race come from, and go: the director's side (``forking.py``)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any, Self
from urllib.parse import urlsplit

from django.conf import settings

START_S = 30.0
STOP_S = 10.0

_SETTINGS = {
    "SECKILL_LAB": "true",
    "SECKILL_DATABASE_TIMEOUT_S": "5",  # manage.py has more patience than a race
    # The messages of a race reach nobody: who works next is for the director to say.
    "CELERY_BROKER_URL": "memory://",
}
_START = (
    "import django, sys; django.setup(); from lab.play.forking import main; main(int(sys.argv[1]))"
)
_LONGEST = 4096


class BackstageGone(Exception):
    """The process that makes the processes of a race has ended, or does not answer."""


class Backstage:
    """Makes and ends the processes of played races, on the database of this name.

    :raises BackstageGone: it did not start
    """

    def __init__(self, *, database: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_S)
        environ = {**os.environ, **_SETTINGS, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE}
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}").geturl()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno())],
                cwd=settings.BASE_DIR,
                env={**environ, "DATABASE_URL": url},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the director's, who then ends all
            )
        try:
            self._hear()
        except BackstageGone:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and with it every process that it has made."""
        self._control.close()
        try:
            self._popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def fork(self) -> tuple[int, Connection]:
        """Make a process that performs, and return its id and the pipe to it.

        :raises BackstageGone: it cannot
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._ask({"do": "fork"}, theirs.fileno())
            return self._hear(), Connection(ours.detach())

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal, and return when the process has ended, stopped, or gone on by it.

        :raises BackstageGone: it cannot
        """
        self._ask({"do": "signal", "pid": pid, "signal": int(number)})
        self._hear()

    def _ask(self, request: dict[str, Any], *descriptors: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            raise BackstageGone(str(error)) from error

    def _hear(self) -> int:
        try:
            answer = self._control.recv(_LONGEST)
        except OSError as error:
            raise BackstageGone(str(error)) from error
        if not answer:
            raise BackstageGone("it has ended; its error is on standard error")
        return int(answer)
