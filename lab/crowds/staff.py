"""The selling processes of a sale, from the side of the race: started, struck, replaced, ended.

They are forked from a server that has set up Django once, so that each begins in a moment, and with
nothing in its memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.crowds.faults import PAUSE_S
from lab.crowds.forked import begin
from lab.crowds.seller import Shift
from lab.crowds.sheet import FRESH, Sheet, now_us

READY_S = 60.0
GLANCE_S = 0.002
LONGEST_DIRECTORY = 60
"""In bytes: two names of some twenty come after it, and the kernel takes 107 for a socket."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["lab.crowds.forked"])


class SellerDied(Exception):
    """A selling process ended that was not to; carries the end of its log."""


@dataclass
class Hired:
    """A running process; ``errors`` is where it tells at its end what failed."""

    shift: Shift
    process: ForkServerProcess
    errors: Connection


class Staff:
    """All processes of a sale; whatever still runs at the end of the block is killed."""

    def __init__(self, shifts: list[Shift], sheet: Sheet) -> None:
        self._shifts = shifts
        self._sheet = sheet
        self._hired: list[Hired] = []
        self.errors: Counter[str] = Counter()

    def __enter__(self) -> Self:
        try:
            for shift in self._shifts:
                self._hire(shift)
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()

    def replace_killed(self) -> bool:
        """Start a successor, of another name, for who was killed; says whether somebody was.

        What a process had in hand is gone with it. The presses that it had not begun go on.

        :raises SellerDied: one ended otherwise.
        """
        for hired in self._hired:
            code = hired.process.exitcode
            if code == -signal.SIGKILL and self._sheet.struck_us.value:
                self._hired.remove(hired)
                self._hire(self._rest_of(hired.shift))
                return True
            if code:
                raise SellerDied(_tail(hired.shift))
        return False

    def resume_paused(self) -> bool:
        """Let who stands still go on once the pause is over; says whether that was now."""
        struck_us, resumed = self._sheet.struck_us.value, self._sheet.resumed
        if not struck_us or resumed.value or now_us() - struck_us < PAUSE_S * 1_000_000:
            return False
        resumed.value = 1
        os.kill(self._sheet.struck_pid.value, signal.SIGCONT)
        return True

    def has_pressed_all(self) -> bool:
        """Say whether there is nothing left to press."""
        return all(self._sheet.done)

    def is_over(self) -> bool:
        """Say whether everybody has gone home, with all that they had to write."""
        return all(hired.process.exitcode == 0 for hired in self._hired)

    def kill(self) -> None:
        """End them all; what they told of their errors is kept."""
        for hired in self._hired:
            with suppress(EOFError):
                if hired.errors.poll():
                    self.errors.update(hired.errors.recv())
            hired.process.kill()
        for hired in self._hired:
            hired.process.join()
            hired.process.close()
            hired.errors.close()
        self._hired.clear()

    def _hire(self, shift: Shift) -> None:
        receiver, sender = _context.Pipe(duplex=False)
        process = _context.Process(target=begin, args=(shift, sender), name=shift.name)
        with _short_temporary_directory():
            process.start()
        sender.close()
        self._hired.append(Hired(shift, process, receiver))

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + READY_S
        while not all(self._sheet.ready):
            for hired in self._hired:
                if hired.process.exitcode is not None or time.monotonic() > until:
                    raise SellerDied(_tail(hired.shift))
            time.sleep(GLANCE_S)

    def _rest_of(self, shift: Shift) -> Shift:
        lanes = [
            replace(lane, beside=(), presses=self._fresh(lane.presses)) for lane in shift.lanes
        ]
        return replace(shift, name=f"{shift.name}-successor", lanes=lanes, strike=None)

    def _fresh(self, presses: Sequence[int]) -> list[int]:
        return [it for it in presses if self._sheet.state(it) == FRESH]


@contextmanager
def _short_temporary_directory() -> Iterator[None]:
    """Let the server of forks have its socket where the kernel takes the path."""
    before = tempfile.tempdir
    if len(tempfile.gettempdir()) > LONGEST_DIRECTORY:
        tempfile.tempdir = "/tmp"
    try:
        yield
    finally:
        tempfile.tempdir = before


def _tail(shift: Shift) -> str:
    log = Path(shift.log)
    said = log.read_text(errors="replace") if log.exists() else ""
    return f"{shift.name}: {said[-2000:] or 'without a word'}"
