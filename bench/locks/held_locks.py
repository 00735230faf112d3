"""Row 4: the cost of holding and renewing a thousand locks."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import NamedTuple

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
from bench.locks.run import BEGIN, END, Run, commands_sent, control_of, values_of
from bench.processes import spawned

LIBRARIES = (Ours, RedisPy, RenewingPythonRedisLock, Pottery)
LEASES_BEFORE, LEASES_HELD = 5 / 6, 2 / 3
"""Leases before and during the measure. At three or at one and a half renewals a lease the second
has a whole number of them, none near its edges, and the first has those that open connections."""

NAMES = ("threads for renewal", "CPU s a minute", "renewal commands/s", "round trips to renew all")


class Cost(NamedTuple):
    """What one process spent on its held locks, in the order of ``NAMES``."""

    threads: float
    cpu_s_a_minute: float
    commands_a_second: float
    round_trips: float


def measure(run: Run) -> list[Figure]:
    row = f"4 {run.plan.held:,} held locks"
    costs = {
        library: _cost(run, library)
        for library in run.in_turn(LIBRARIES, rounds=1, what=row)
        if library.renewals_a_lease
    }

    def figure(number: int, name: str) -> Figure:
        def value_of(library: type[Library]) -> Value:
            return costs[library][number] if library in costs else "none"

        return Figure(row, name, Better.LOWER, values_of(LIBRARIES, value_of))

    return [figure(number, name) for number, name in enumerate(NAMES)]


def _cost(run: Run, library: type[Library]) -> Cost:
    """Measure in a fresh process, whose threads and CPU time are this library's alone."""
    count, lease_s = run.plan.held, run.plan.lease_s
    call = partial(hold_many, library, run.url, count=count, lease_s=lease_s)
    with commands_sent(run.url) as sent, spawned(1) as process:
        threads, cpu_s, writes = process.submit(call).result()
    seconds = lease_s * LEASES_HELD
    renewals = LEASES_HELD * (library.renewals_a_lease or 0)
    return Cost(threads, cpu_s * 60 / seconds, len(sent) / seconds, writes / renewals)


def hold_many(
    library: type[Library], url: str, *, count: int, lease_s: int
) -> tuple[float, float, int]:
    """Hold the locks; return the threads that this took, the CPU seconds and the writes."""
    client = client_of(library, url, counting=True)
    locks = [library(client, f"{{bench}}:held:{n}", lease_s=lease_s) for n in range(count)]
    threads_before = threading.active_count()
    for lock in locks:
        assert lock.acquire(), "a free lock was refused"
    time.sleep(lease_s * LEASES_BEFORE)
    threads = threading.active_count() - threads_before
    with control_of(url) as control:
        control.echo(BEGIN)
        cpu_before, writes_before = time.process_time(), next(CountingConnection.writes)
        time.sleep(lease_s * LEASES_HELD)
        cpu_s = time.process_time() - cpu_before
        writes = next(CountingConnection.writes) - writes_before - 1
        control.echo(END)
    for lock in locks:
        lock.release()
    return float(threads), cpu_s, writes
