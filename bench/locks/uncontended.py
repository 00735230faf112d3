"""Rows 1 and 4: uncontended locks, one taken and released repeatedly, many held at once."""

import threading
import time
from collections import defaultdict
from functools import partial
from statistics import median

from bench.locks.libraries import HELD, TAKEN, CountingConnection, Library, client_of
from bench.locks.run import Better, Figure, Run, Value, commands_sent, counted, figure_of
from bench.processes import spawned

ROW = "1 uncontended"
WARM_UP_CYCLES = 20
COUNTED_CYCLES = 100
LEASES_BEFORE, LEASES_HELD = 5 / 6, 2 / 3
"""Leases before and during the measurement. At 3 or 1.5 renewals per lease, the measurement has a
whole number of them, none near its edges; the time before has those that open connections."""

NAMES = ("threads for renewal", "CPU s a minute", "renewal commands/s", "round trips to renew all")


# --- Row 1 ----------------------------------------------------------------------------------------


def measure_cycles(run: Run) -> list[Figure]:
    rates: defaultdict[type[Library], list[float]] = defaultdict(list)
    for library in run.in_turn(TAKEN, rounds=run.plan.cycle_rounds, what=ROW):
        rates[library] += run.at_once(partial(rate, library, run.url, run.plan.cycle_s))
    commands = {}
    for library in run.in_turn(TAKEN, rounds=1, what=f"{ROW}, commands"):
        with commands_sent(run.url) as sent:
            run.at_once(partial(marked_cycles, library, run.url))
        commands[library] = len(sent) / COUNTED_CYCLES
    return [
        figure_of(ROW, "cycles/s", Better.HIGHER, TAKEN, lambda library: median(rates[library])),
        figure_of(ROW, "commands a cycle", Better.LOWER, TAKEN, commands.__getitem__),
    ]


def rate(library: type[Library], url: str, seconds: float) -> float:
    """Return cycles per second, after a few that are not counted."""
    lock = library(client_of(library, url), "{bench}:uncontended")
    cycles(lock, WARM_UP_CYCLES)
    done = 0
    began_at = time.perf_counter()
    while (elapsed_s := time.perf_counter() - began_at) < seconds:
        cycles(lock, 1)
        done += 1
    return done / elapsed_s


def marked_cycles(library: type[Library], url: str) -> None:
    lock = library(client_of(library, url), "{bench}:counted")
    cycles(lock, WARM_UP_CYCLES)
    with counted(url):
        cycles(lock, COUNTED_CYCLES)


def cycles(lock: Library, count: int) -> None:
    for _ in range(count):
        assert lock.acquire(), "a free lock was refused"
        lock.release()


# --- Row 4 ----------------------------------------------------------------------------------------


def measure_held(run: Run) -> list[Figure]:
    row = f"4 {run.plan.held:,} held locks"
    costs = {
        library: _cost(run, library)
        for library in run.in_turn(HELD, rounds=1, what=row)
        if library.renewals_a_lease
    }

    def value_of(number: int, library: type[Library]) -> Value:
        return costs[library][number] if library in costs else "none"

    return [
        figure_of(row, name, Better.LOWER, HELD, partial(value_of, number))
        for number, name in enumerate(NAMES)
    ]


def _cost(run: Run, library: type[Library]) -> tuple[float, ...]:
    """Measure the figures in a fresh process: its threads and CPU time are this library's alone."""
    count, lease_s = run.plan.held, run.plan.lease_s
    call = partial(hold_many, library, run.url, count=count, lease_s=lease_s)
    with commands_sent(run.url) as sent, spawned(1) as process:
        threads, cpu_s, writes = process.submit(call).result()
    seconds = lease_s * LEASES_HELD
    renewals = LEASES_HELD * (library.renewals_a_lease or 0)
    return threads, cpu_s * 60 / seconds, len(sent) / seconds, writes / renewals


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
    with counted(url):
        cpu_before, writes_before = time.process_time(), next(CountingConnection.writes)
        time.sleep(lease_s * LEASES_HELD)
        cpu_s = time.process_time() - cpu_before
        writes = next(CountingConnection.writes) - writes_before - 1
    for lock in locks:
        lock.release()
    return float(threads), cpu_s, writes
