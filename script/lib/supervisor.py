"""honcho as the supervisor of a run, with additions (docs/adr/0008).

When one part ends and is not started again (``part.py``), all end, with its exit status. The output
of all goes to one terminal.
"""

import multiprocessing
import os
import pickle
import queue
import resource
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import honcho.manager
from honcho.manager import SYSTEM_PRINTER_NAME
from honcho.printer import Message, Printer
from honcho.process import Process
from part import die_with_parent, status_of
from servers import PART

MOST_DESCRIPTORS = 65_536
LONGEST_LINE = 65_536  # bytes; the rest is cut off
LONGEST_PACKET = 2 * LONGEST_LINE

# A part ends or kills itself well within this; before that, honcho would kill only its wrapper.
honcho.manager.KILL_WAIT = 30
honcho.manager.SIGNALS[signal.SIGHUP] = {"name": "SIGHUP", "rc": 129}


class Terminal:
    """The standard output; works in a signal handler and when nobody is left to read it."""

    def write(self, text: str) -> None:
        try:
            os.write(sys.stdout.fileno(), text.encode())
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return sys.stdout.isatty()


class Lines(Printer):  # type: ignore[misc]
    """Lines that name their part. Each part writes the time itself, so honcho does not add it."""

    def __init__(self) -> None:
        super().__init__(Terminal(), time_format="")

    def write(self, message: Message) -> None:
        if message.name == SYSTEM_PRINTER_NAME:
            at = message.time.astimezone()
            stamp = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}{at:%z}"
            message = message._replace(data=f"{stamp} INFO honcho: {message.data}")
        super().write(message)


class Events:
    """A queue of the relays' messages, one packet each.

    honcho's queue has a lock, and a relay killed while it holds the lock silences all others.
    """

    def __init__(self) -> None:
        self._hearing, self._telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def put(self, message: Message) -> None:
        if message.type == "line":
            message = message._replace(data=message.data[:LONGEST_LINE])
        self._telling.send(pickle.dumps(message))

    def get(self, timeout: float) -> Message:
        self._hearing.settimeout(timeout)
        try:
            return pickle.loads(self._hearing.recv(LONGEST_PACKET))
        except TimeoutError:
            raise queue.Empty from None


class Relay(Process):  # type: ignore[misc]
    """honcho's own process beside each part, which reads the part's output."""

    def run(self, events: object = None, ignore_signals: bool = False) -> None:
        die_with_parent(signal.SIGKILL)  # and the part with it
        # The end of a terminal sends this signal to its whole group.
        signal.signal(signal.SIGHUP, lambda *_: None)
        super().run(events, ignore_signals)


class Supervisor(honcho.manager.Manager):  # type: ignore[misc]
    """honcho's manager, which may be terminated at any moment."""

    returncode: int | None

    def __init__(self) -> None:
        multiprocessing.set_start_method("fork", force=True)  # relays are to be our own children
        super().__init__(Lines())
        self.events = Events()
        self._process_ctor = Relay
        self._is_asked = False

    def add_part(self, name: str, command: Sequence[str], *options: str, **where: Any) -> None:
        wrapped = shlex.join([sys.executable, "-u", PART, *options, name])
        # Not an argument: "pkill -f granian" must not hit the wrapper, which starts it again.
        environ = {**(where.pop("env", None) or {}), "PART_COMMAND": shlex.join(command)}
        self.add_process(name, f"exec {wrapped}", env=environ, **where)

    def run(self, beside: Callable[[], None] = lambda: None) -> int:
        """Run until all parts have ended and return the exit status of the first."""
        # Allow many connections: the soft limit is often 1,024.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        self._beside = Thread(target=beside, daemon=True)
        self.loop()
        assert self.returncode is not None  # set when the first part ends
        return status_of(self.returncode)

    def terminate(self) -> None:
        """Record the request: a signal may come before honcho knows its parts."""
        self._is_asked = True

    def _start(self) -> None:
        super()._start()
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
        self._beside.start()  # not earlier: a fork copies only one thread

    def _all_started(self) -> bool:
        """Handle killed relays and early signals in each turn of honcho's loop."""
        for name, process in self._processes.items():
            code = process["process"].exitcode
            if code and "returncode" not in process:  # the relay was killed
                process["returncode"] = code
                self.returncode = code if self.returncode is None else self.returncode
                self._system_print(f"{name} stopped (rc={code})\n")
        has_started: bool = super()._all_started()
        if has_started and self._is_asked:
            super().terminate()
        return has_started
