"""Row 3: a waiter in another process, from the release until it has the lock."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from functools import partial

from redis import Redis

from bench.locks.contention import LIBRARIES
from bench.locks.figures import Better, Figure
from bench.locks.libraries import Library, client_of
from bench.locks.run import CONTROL_TIMEOUT_S, Run, control_of, values_of
from bench.tables import percentile

ROW = "3 wake-up in another process"
KEY = "{bench}:waking"
HELD, HAD = "bench:held", "bench:had"
HELD_FOR_S = (0.01, 0.11)
"""Spread over redis-py's 0.1 s between attempts, so that the two do not run in step."""


def measure(run: Run) -> list[Figure]:
    wakes: defaultdict[type[Library], list[float]] = defaultdict(list)
    for library in run.in_turn(LIBRARIES, rounds=run.plan.wake_rounds, what=ROW):
        calls = [partial(call, library, run.url, run.plan.wakes) for call in (hold, wait)]
        pairs = zip(*run.at_once(*calls), strict=True)
        wakes[library] += [(got_at - released_at) / 1e6 for released_at, got_at in pairs]

    def figure(name: str, share: float) -> Figure:
        values = values_of(LIBRARIES, lambda library: percentile(wakes[library], share))
        return Figure(ROW, name, Better.LOWER, values)

    return [figure("median, ms", 0.5), figure("p99, ms", 0.99)]


def hold(library: type[Library], url: str, times: int) -> list[int]:
    """Hold the lock while the other waits; return the start of each release (ns)."""
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
    """Wait for the lock while the other holds it; return when it was granted (ns)."""
    lock = library(client_of(library, url), KEY)
    had = []
    with control_of(url) as control:
        for _ in range(times):
            await_sign(control, HELD)
            assert lock.acquire(), "the lock was not granted in time"
            had.append(time.monotonic_ns())
            lock.release()
            control.rpush(HAD, 1)
    return had


def await_sign(control: Redis, name: str) -> None:
    """Wait for a sign of the other process.

    :raises TimeoutError: none came in time
    """
    if control.blpop([name], timeout=CONTROL_TIMEOUT_S - 5) is None:
        raise TimeoutError(f"the other process gave no sign: {name}")
