"""How tests wait, on machines that sometimes stand still for a second or more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MOMENT_S = 6.0
"""More than any timeout of the site, less than the minutes that libraries wait by default."""

GENEROUS_S = 120.0
"""Far more than anything should take; a test that waits this long has failed."""


LONGEST_LOOK_S = 1.0
"""A look at a condition counts as no more: the machine may have stood still meanwhile."""

LONGEST_STEP_S = 0.25
"""More than this between two ticks of ``running_s``, and the machine has stood still."""


def eventually(condition: Callable[[], object], *, within_s: float = GENEROUS_S) -> bool:
    """Wait until a condition holds and return whether it did in time."""
    waited_s, looked_at = 0.0, time.monotonic()
    while not condition():
        if waited_s > within_s:
            return bool(condition())
        time.sleep(0.01)
        now = time.monotonic()
        waited_s, looked_at = waited_s + min(now - looked_at, LONGEST_LOOK_S), now
    return True


def wait_for(
    condition: Callable[[], object], *, what: str = "the condition", seconds: float = GENEROUS_S
) -> None:
    """Wait until a condition holds; fail the test if it does not in time."""
    assert eventually(condition, within_s=seconds), f"{what} did not come about in {seconds:g} s"


class _RunningTime:
    """The time that has passed without that in which the machine stood still."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running_s, self._ticked_at = 0.0, time.monotonic()
        self._ticks: threading.Thread | None = None

    def read(self) -> float:
        """Return the seconds; those since the last tick count as one step at most."""
        with self._guard:
            if self._ticks is None:
                self._ticks = threading.Thread(target=self._tick, name="running time", daemon=True)
                self._ticks.start()
            now = time.monotonic()
            self._running_s += min(now - self._ticked_at, LONGEST_STEP_S)
            self._ticked_at = now
            return self._running_s

    def _tick(self) -> None:
        while True:
            time.sleep(LONGEST_STEP_S / 10)
            self.read()


_running_time = _RunningTime()


def running_s() -> float:
    """Return a time in seconds by which to measure what has to be quick.

    A shared machine stands still for seconds now and then, with every process on it. That is not
    the shop's fault, and adds nothing.
    """
    return _running_time.read()


class Stalls:
    """How long the machine has stood still since this was made."""

    def __init__(self) -> None:
        self._began_at, self._running_at = time.monotonic(), running_s()

    def seconds(self) -> float:
        passed_s = time.monotonic() - self._began_at
        return max(0.0, passed_s - (running_s() - self._running_at))
