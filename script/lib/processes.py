"""Several processes run as one: one terminal for what they say, one end for all of them.

The end comes when somebody asks for it (Ctrl-C, SIGTERM, SIGHUP) or when any of them ends by
itself. Servers stop last, because the others need them while they finish their work. Nothing is
left behind: this process adopts what its children abandon (it is their subreaper) and kills it at
the end, and where it is killed itself, the kernel stops the children (the parent-death signal).
"""

from __future__ import annotations

import ctypes
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, Self

ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
COLOURS = (36, 32, 33, 35, 34, 31)
MOST_DESCRIPTORS = 65_536
HURRY_SECONDS = 1.0
"""A second request to stop is impatience only after this long: some senders send twice."""

libc = ctypes.CDLL(None, use_errno=True)


class Ended(Exception):
    """The run is over; ``code`` is the exit status that says why."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code


class Asked(Ended):
    """Somebody asked for the end."""


def say(text: str) -> None:
    """Write to the terminal, also when nobody is left to read it."""
    try:
        os.write(sys.stdout.fileno(), f"{text}\n".encode())
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass
class Process:
    """A child, ``code`` being its exit status once it has one."""

    name: str
    popen: subprocess.Popen[bytes]
    stop_signal: signal.Signals
    grace_seconds: float
    is_server: bool
    colour: int
    unfinished_line: bytes = b""
    code: int | None = None

    def send(self, signum: int) -> None:
        if self.code is None:
            os.kill(self.popen.pid, signum)


class Processes:
    """The children of this run, watched from one loop in one thread; they end with its block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[Process] = []
        self._ending_since: float | None = None
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._signalled = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(self._signalled, False)

    def __enter__(self) -> Self:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        _raise_descriptor_limit()
        signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        for signum in (*ASKED_TO_END, signal.SIGCHLD):
            signal.signal(signum, lambda *_: None)  # the wakeup descriptor tells the loop
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        if any(process.popen.stdout for process in self.children):
            say("Stopping everything ...")
        self._end()

    # --- Starting --------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
        log: Path | None = None,
        is_server: bool = False,
    ) -> Process:
        """Start what lives as long as the run; it prints to ``log`` or, named, to the terminal."""
        with log.open("ab") if log else nullcontext(subprocess.PIPE) as output:
            process = self._spawn(
                name,
                command,
                environ=environ,
                directory=directory,
                output=output,
                is_server=is_server,
            )
        if process.popen.stdout:
            os.set_blocking(process.popen.stdout.fileno(), False)
            self._selector.register(process.popen.stdout, selectors.EVENT_READ, process)
        return process

    def call(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
        grace_seconds: float = 10,
    ) -> int:
        """Run a command, on the terminal or into ``output``, to its end and return its exit status.

        :raises Ended: the run ended meanwhile; the command was interrupted as by Ctrl-C.
        """
        process = self._spawn(
            Path(command[0]).name,
            command,
            environ=environ,
            output=output,
            stop_signal=signal.SIGINT,
            grace_seconds=grace_seconds,
        )
        while process.code is None:
            self._turn(0.5)
        self.children.remove(process)
        return process.code

    def _spawn(
        self,
        name: str,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None,
        directory: Path | None = None,
        output: IO[bytes] | int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        grace_seconds: float = 10,
        is_server: bool = False,
    ) -> Process:
        def die_with_parent() -> None:
            libc.prctl(PR_SET_PDEATHSIG, stop_signal)

        popen = subprocess.Popen(
            command,
            cwd=directory or self.directory,
            env=environ,
            stdin=subprocess.DEVNULL if output else None,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,  # Ctrl-C comes to this process alone
            preexec_fn=die_with_parent,
        )
        colour = COLOURS[len(self.children) % len(COLOURS)]
        process = Process(name, popen, stop_signal, grace_seconds, is_server, colour)
        self.children.append(process)
        return process

    # --- Waiting ---------------------------------------------------------------------------------

    def wait_until(self, is_ready: Callable[[], bool], *, what: str, seconds: float = 60) -> None:
        """Wait for something to become true while everything runs.

        :raises Ended: it did not become true in time, or the run ended meanwhile.
        """
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline:
                raise Ended(1, f"{what} was not ready within {seconds:g} seconds")
            self._turn(0.05)

    def wait(self) -> NoReturn:
        """Wait for the end.

        :raises Ended: always.
        """
        while True:
            self._turn(None)

    def _turn(self, seconds: float | None) -> None:
        """Look after what happens within the next ``seconds``, or until something does."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._take_signals()
            else:
                self._print(key.data)

    def _take_signals(self) -> None:
        signals = set(os.read(self._wakeup, 512))
        self._reap()
        asked = signals.intersection(ASKED_TO_END)
        if not asked:
            return
        if self._ending_since is None:
            raise Asked(128 + min(asked), f"stopped by {signal.Signals(min(asked)).name}")
        if time.monotonic() > self._ending_since + HURRY_SECONDS:
            self._kill_all()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for process in self.children:
                if process.popen.pid == pid:
                    self._note_end(process, os.waitstatus_to_exitcode(status))

    def _note_end(self, process: Process, code: int) -> None:
        process.code = process.popen.returncode = code if code >= 0 else 128 - code
        is_part = process.stop_signal == signal.SIGTERM
        if is_part and self._ending_since is None:
            self._print(process)
            why = f"{process.name} ended by itself (exit status {code}), so everything was stopped"
            raise Ended(process.code or 1, why)

    # --- Printing --------------------------------------------------------------------------------

    def _print(self, process: Process) -> None:
        """Print the whole lines a process has written, each with its name in front."""
        pipe = process.popen.stdout
        if not pipe or pipe.closed:
            return
        while chunk := self._read(pipe.fileno()):
            *lines, process.unfinished_line = (process.unfinished_line + chunk).split(b"\n")
            for line in lines:
                say(f"{self._prefix(process)} {line.decode(errors='replace')}")
        if chunk == b"":
            self._selector.unregister(pipe)
            pipe.close()

    @staticmethod
    def _read(descriptor: int) -> bytes | None:
        try:
            return os.read(descriptor, 65536)
        except BlockingIOError:
            return None

    @staticmethod
    def _prefix(process: Process) -> str:
        text = f"{process.name:<7} |"
        return f"\033[{process.colour}m{text}\033[0m" if sys.stdout.isatty() else text

    # --- Ending ----------------------------------------------------------------------------------

    def _end(self) -> None:
        """Stop everything, the servers last; what is still there after its grace is killed."""
        self._ending_since = time.monotonic()
        self._stop([process for process in self.children if not process.is_server])
        self._stop([process for process in self.children if process.is_server])
        self._kill_all()
        for process in self.children:
            self._print(process)

    def _stop(self, processes: list[Process]) -> None:
        for process in processes:
            process.send(process.stop_signal)
        deadline = time.monotonic() + max((p.grace_seconds for p in processes), default=0)
        while any(process.code is None for process in processes):
            if time.monotonic() > deadline:
                return
            self._turn(0.1)

    def _kill_all(self) -> None:
        while children := list(_children()):
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
            self._reap()


def _children() -> Iterator[int]:
    """The processes whose parent this one is, adopted ones too."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            yield int(stat.parent.name)


def _raise_descriptor_limit() -> None:
    """Let a crowd of connections in: the soft limit is often 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
