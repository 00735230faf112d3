"""The processes of a race, and the server that forks, signals and reaps them.

The server has one thread, all imports done and no open connection, so a fork takes milliseconds and
starts without state. Only the parent of a process sends it signals, so no signal reaches another
process with a reused id. When the director hangs up or dies, the server kills all processes that
are left, including stopped ones.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

START_S = 30.0
STOP_S = 10.0
LONGEST_MESSAGE = 4096
PR_SET_PDEATHSIG = 1

_SETTINGS = {
    "SECKILL_LAB": "true",
    "SECKILL_DATABASE_TIMEOUT_S": "5",  # shorter than that of manage.py
}
_PROGRAM = """
import sys, django
django.setup()
import lab.crowd.seller, lab.interleaving.races  # imported once, for all forks
from lab.engine.fork_server import serve
serve(int(sys.argv[1]))
"""

Main = Callable[[Connection], None]
"""The function that a process runs, with the pipe to its director."""


def end_with_parent(signum: signal.Signals) -> None:
    """Let the kernel send this signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum)


def environment() -> dict[str, str]:
    """Return the environment of this process, with the database that it uses."""
    name = connection.settings_dict["NAME"]
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    return {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE}


# --- The director's side --------------------------------------------------------------------------


class ForkServerGone(Exception):
    """The server has ended, or does not respond."""


class ProcessEnded(Exception):
    """A process of the race has ended by itself."""


class ForkServer:
    """A server that forks and ends processes, which use this process's database.

    :raises ForkServerGone: the server did not start.
    """

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_S)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                cwd=settings.BASE_DIR,
                env=environment() | _SETTINGS,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C goes to the director, which ends all
            )
        try:
            self._ask({})  # wait for the greeting
        except ForkServerGone:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, and with it every process that it forked."""
        self._control.close()
        try:
            self._popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def fork(self, main: Main, number: int) -> Process:
        """Fork a process that runs ``main``; its number is for the reader.

        :raises ForkServerGone: the server has ended.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pid = self._ask({"do": "fork"}, theirs.fileno())
            pipe = Connection(ours.detach())
        pipe.send(main)
        return Process(self, pid, pipe, number)

    def signal(self, pid: int, signum: signal.Signals) -> None:
        """Send a signal, and return when the process has ended, stopped or continued.

        :raises ForkServerGone: the server has ended.
        """
        self._ask({"do": "signal", "pid": pid, "signal": int(signum)})

    def _ask(self, request: dict[str, Any], *descriptors: int) -> int:
        try:
            if request:
                socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            answer = self._control.recv(LONGEST_MESSAGE)
        except OSError as error:
            raise ForkServerGone(str(error)) from error
        if not answer:
            raise ForkServerGone("it has ended; its error is on standard error")
        return int(answer)


@dataclass(eq=False)
class Process:
    """A forked process: its pipe, and the messages from each of its actors."""

    server: ForkServer
    pid: int
    pipe: Connection
    number: int
    is_alive: bool = True
    inboxes: defaultdict[str, deque[Any]] = field(default_factory=lambda: defaultdict(deque))

    def send(self, what: str, actor: str, *details: object) -> None:
        """Tell an actor of the process what to do."""
        self.pipe.send((what, actor, *details))

    def receive(self, actor: str = "", *, timeout_s: float = 0) -> Any:
        """Return the next message from this actor, or None if none comes in time.

        :raises ProcessEnded: there will be no more messages.
        """
        inbox = self.inboxes[actor]
        deadline = time.monotonic() + timeout_s
        while not inbox:
            if not self.pipe.poll(max(0.0, deadline - time.monotonic())):
                return None
            try:
                name, *message = self.pipe.recv()
            except (EOFError, ConnectionError) as error:
                raise ProcessEnded(f"process {self.number} has ended by itself") from error
            self.inboxes[name].append(message)
        return inbox.popleft()

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal, and return when it has taken effect."""
        self.server.signal(self.pid, signum)
        if signum is signal.SIGKILL:
            self.is_alive = False
            self.pipe.close()


# --- The server's side ----------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Fork and signal for the director at the other end of this socket, until it hangs up."""
    children: set[int] = set()
    with socket.socket(fileno=descriptor) as control:
        try:
            control.send(b"0")
            while True:
                request, descriptors, _, _ = socket.recv_fds(control, LONGEST_MESSAGE, 1)
                if not request:
                    return
                for pid in list(children):
                    if os.waitpid(pid, os.WNOHANG)[0]:
                        children.discard(pid)
                answer = _answer(json.loads(request), descriptors, children, control)
                control.send(str(answer).encode())
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _answer(
    request: dict[str, Any], descriptors: list[int], children: set[int], control: socket.socket
) -> int:
    if request["do"] == "fork":
        (pipe,) = descriptors
        pid = os.fork()
        if not pid:
            control.close()
            _run(pipe)
        os.close(pipe)
        children.add(pid)
        return pid
    if request["pid"] in children:
        _signal(request["pid"], request["signal"], children)
    return 0


def _signal(pid: int, signum: int, children: set[int]) -> None:
    """Send a signal and wait for its effect, even if the process had stopped itself."""
    os.kill(pid, signum)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            children.discard(pid)
            return
        if signum == signal.SIGSTOP and os.WIFSTOPPED(status):
            return
        if signum == signal.SIGCONT and os.WIFCONTINUED(status):
            return


def _run(descriptor: int) -> None:
    """Run as one process of a race; never return."""
    end_with_parent(signal.SIGKILL)
    status = 1
    try:
        pipe = Connection(descriptor)
        main: Main = pipe.recv()
        main(pipe)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)
