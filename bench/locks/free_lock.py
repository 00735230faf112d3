"""Row 1: one thread that takes a free lock and releases it, again and again."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from statistics import median

from bench.locks.figures import Better, Figure
from bench.locks.libraries import (
    Library,
    Ours,
    Pottery,
    PythonRedisLock,
    RedisPy,
    RenewingPythonRedisLock,
    client_of,
)
from bench.locks.run import BEGIN, END, Run, commands_sent, control_of, values_of

ROW = "1 uncontended"
LIBRARIES = (Ours, RedisPy, PythonRedisLock, RenewingPythonRedisLock, Pottery)
WARM_UP_CYCLES = 20
COUNTED_CYCLES = 100


def measure(run: Run) -> list[Figure]:
    rates: defaultdict[type[Library], list[float]] = defaultdict(list)
    for library in run.in_turn(LIBRARIES, rounds=run.plan.cycle_rounds, what=ROW):
        rates[library] += run.at_once(partial(rate, library, run.url, run.plan.cycle_s))
    commands = {}
    for library in run.in_turn(LIBRARIES, rounds=1, what=f"{ROW}, commands"):
        with commands_sent(run.url) as sent:
            run.at_once(partial(marked_cycles, library, run.url))
        commands[library] = len(sent) / COUNTED_CYCLES
    medians = values_of(LIBRARIES, lambda library: median(rates[library]))
    return [
        Figure(ROW, "cycles/s", Better.HIGHER, medians),
        Figure(ROW, "commands a cycle", Better.LOWER, values_of(LIBRARIES, commands.__getitem__)),
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
    """Run the cycles whose commands are counted between the two marks."""
    lock = library(client_of(library, url), "{bench}:counted")
    cycles(lock, WARM_UP_CYCLES)
    with control_of(url) as control:
        control.echo(BEGIN)
        cycles(lock, COUNTED_CYCLES)
        control.echo(END)


def cycles(lock: Library, count: int) -> None:
    for _ in range(count):
        assert lock.acquire(), "a free lock was refused"
        lock.release()
