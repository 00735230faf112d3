"""Forks the processes of a played race, signals them and reaps them, for a director.

One thread, everything imported, no connection open: so a process is there in milliseconds. As the
parent it alone sends signals, so none ever meets a stranger who has got the number of a dead child.
When the director hangs up, or dies, it kills them all, also those that stand still.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import traceback
from multiprocessing.connection import Connection
from typing import Any

from lab.play import races  # noqa: F401  # what the actors will need is imported once, here
from lab.play.performing import perform

LONGEST = 4096
PR_SET_PDEATHSIG = 1


def main(descriptor: int) -> None:
    """Serve the director at the other end of this socket."""
    with socket.socket(fileno=descriptor) as control:
        serve(control)


def serve(control: socket.socket) -> None:
    """Fork and signal as the director asks, until it hangs up; then kill what is left."""
    children: set[int] = set()
    try:
        control.send(b"0")
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, LONGEST, 1)
            if not request:
                return
            answer = _done(json.loads(request), descriptors, children, control)
            control.send(str(answer).encode())
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _done(
    request: dict[str, Any], descriptors: list[int], children: set[int], control: socket.socket
) -> int:
    _reap(children)
    if request["do"] == "fork":
        (pipe,) = descriptors
        pid = os.fork()
        if not pid:
            control.close()
            _perform(pipe)
        os.close(pipe)
        children.add(pid)
        return pid
    pid, number = request["pid"], signal.Signals(request["signal"])
    if pid in children:
        os.kill(pid, number)
        _, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED)
        if not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
            children.discard(pid)
    return 0


def _reap(children: set[int]) -> None:
    """Forget those that have ended by themselves."""
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def _perform(pipe: int) -> None:
    """Be one process of a race; never returns."""
    ctypes.CDLL(None).prctl(
        PR_SET_PDEATHSIG, signal.SIGKILL
    )  # end with the parent, however it ends
    status = 1
    try:
        perform(Connection(pipe))
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)
