"""Row 3: one holder and one process that waits already: from the release until that one has it."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from functools import partial

from redis import Redis

from bench.locks.contended import LIBRARIES
from bench.locks.course import CONTROL_TIMEOUT_S, Course, control_of, values_of
from bench.locks.figures import Better, Figure, percentile
from bench.locks.libraries import Library, client_of

ROW = "3 wake-up in another process"
KEY = "{bench}:waking"
HELD, HAD = "bench:held", "bench:had"
HELD_FOR_S = (0.01, 0.11)
"""Spread over redis-py's 0.1 s between attempts, which would else be met in step."""


def measure(course: Course) -> list[Figure]:
    wakes: defaultdict[type[Library], list[float]] = defaultdict(list)
    for library in course.in_turn(LIBRARIES, rounds=course.plan.wake_rounds, what=ROW):
        wakes[library] += _wakes_ms(course, library)

    def figure(name: str, share: float) -> Figure:
        values = values_of(LIBRARIES, lambda library: percentile(wakes[library], share))
        return Figure(ROW, name, Better.LOWER, values)

    return [figure("median, ms", 0.5), figure("p99, ms", 0.99)]


def _wakes_ms(course: Course, library: type[Library]) -> list[float]:
    released, had = course.at_once(
        partial(hold, library, course.url, course.plan.wakes),
        partial(wait, library, course.url, course.plan.wakes),
    )
    return [(after - before) / 1e6 for before, after in zip(released, had, strict=True)]


def hold(library: type[Library], url: str, times: int) -> list[int]:
    """Hold the lock while the other waits, and return when each release began (ns)."""
    lock = library(client_of(library, url), KEY)
    released = []
    with control_of(url) as control:
        for _ in range(times):
            assert lock.acquire(), "a free lock was refused"
            control.rpush(HELD, 1)
            time.sleep(random.uniform(*HELD_FOR_S))
            released.append(time.monotonic_ns())
            lock.release()
            await_sign(control, HAD)
    return released


def wait(library: type[Library], url: str, times: int) -> list[int]:
    """Wait for the lock while the other holds it, and return when it was had (ns)."""
    lock = library(client_of(library, url), KEY)
    had = []
    with control_of(url) as control:
        for _ in range(times):
            await_sign(control, HELD)
            assert lock.acquire(), "the lock was not had in time"
            had.append(time.monotonic_ns())
            lock.release()
            control.rpush(HAD, 1)
    return had


def await_sign(control: Redis, name: str) -> None:
    """Wait for the other process.

    :raises TimeoutError: it gave no sign in time
    """
    if control.blpop([name], timeout=CONTROL_TIMEOUT_S - 5) is None:
        raise TimeoutError(f"the other process gave no sign: {name}")
