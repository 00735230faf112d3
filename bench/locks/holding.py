"""Row 4: what it costs to hold a thousand locks and to renew them meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench.locks.course import BEGIN, END, Course, commands_sent, control_of, processes, values_of
from bench.locks.figures import Better, Figure, Value
from bench.locks.libraries import (
    CountingConnection,
    Library,
    Ours,
    Pottery,
    RedisPy,
    RenewingPythonRedisLock,
    client_of,
)

LIBRARIES = (Ours, RedisPy, RenewingPythonRedisLock, Pottery)
LEASES_BEFORE, LEASES_HELD = 5 / 6, 2 / 3
"""Before and while it is measured. At three or at one and a half renewals a lease the second has a
whole number of them, none near its edges, and the first has those that open connections."""


class Cost(NamedTuple):
    """What one process spent on its held locks."""

    threads: float
    cpu_s_a_minute: float
    commands_a_second: float
    round_trips: float  # for one renewal of all the locks


def measure(course: Course) -> list[Figure]:
    row = f"4 {course.plan.held:,} held locks"
    costs = {
        library: _cost(course, library)
        for library in course.in_turn(LIBRARIES, rounds=1, what=row)
        if library.renewals_a_lease
    }

    def figure(name: str, value: Callable[[Cost], float]) -> Figure:
        def value_of(library: type[Library]) -> Value:
            return value(costs[library]) if library in costs else "none"

        return Figure(row, name, Better.LOWER, values_of(LIBRARIES, value_of))

    return [
        figure("threads for renewal", lambda cost: cost.threads),
        figure("CPU s a minute", lambda cost: cost.cpu_s_a_minute),
        figure("renewal commands/s", lambda cost: cost.commands_a_second),
        figure("round trips to renew all", lambda cost: cost.round_trips),
    ]


def _cost(course: Course, library: type[Library]) -> Cost:
    """Measure in a fresh process, whose threads and CPU time are this library's alone."""
    count, lease_s = course.plan.held, course.plan.lease_s
    call = partial(hold_many, library, course.url, count=count, lease_s=lease_s)
    with commands_sent(course.url) as sent, processes(1) as process:
        threads, cpu_s, writes = process.submit(call).result()
    seconds = lease_s * LEASES_HELD
    renewals = LEASES_HELD * (library.renewals_a_lease or 0)
    return Cost(threads, cpu_s * 60 / seconds, len(sent) / seconds, writes / renewals)


def hold_many(
    library: type[Library], url: str, *, count: int, lease_s: int
) -> tuple[float, float, int]:
    """Hold the locks, and return the threads this took, the CPU seconds, the writes to Redis."""
    client = client_of(library, url, counting=True)
    locks = [library(client, f"{{bench}}:held:{n}", lease_s=lease_s) for n in range(count)]
    threads_before = threading.active_count()
    for lock in locks:
        assert lock.acquire(), "a free lock was refused"
    time.sleep(lease_s * LEASES_BEFORE)
    threads = threading.active_count() - threads_before
    cpu_s, writes = _spent(url, lease_s * LEASES_HELD)
    for lock in locks:
        lock.release()
    return float(threads), cpu_s, writes


def _spent(url: str, seconds: float) -> tuple[float, int]:
    """Return the CPU seconds and the writes of this process while it does nothing but hold."""
    with control_of(url) as control:
        control.echo(BEGIN)
        cpu_before, writes_before = time.process_time(), next(CountingConnection.writes)
        time.sleep(seconds)
        cpu_s = time.process_time() - cpu_before
        writes = next(CountingConnection.writes) - writes_before - 1
        control.echo(END)
    return cpu_s, writes
