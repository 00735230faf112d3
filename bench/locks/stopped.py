"""Row 5: a holder that is stopped beyond its lease: who waits how long, and does it learn of it."""

import os
import time
from collections import defaultdict
from statistics import median

from bench.locks.contention import HELD, await_sign
from bench.locks.libraries import TAKEN, Library, client_of
from bench.locks.run import Better, Figure, Run, control_of, figure_of
from bench.processes import stopped

LEASE_S = 2
ROW = f"5 stopped holder, lease {LEASE_S} s"
KEY, GO = "{bench}:stopped", "bench:go"
IN_TIME, LATE, NEVER = "before it goes on", "when it releases", "never"


def measure_stopped(run: Run) -> list[Figure]:
    waits: defaultdict[type[Library], list[float]] = defaultdict(list)
    learned: dict[type[Library], str] = {}
    for library in run.in_turn(TAKEN, rounds=run.plan.stopped_rounds, what=ROW):
        holder = run.processes.submit(hold_stopped, library, run.url)
        with control_of(run.url) as control:
            pid = int(await_sign(control, HELD))
            waits[library].append(
                run.processes.submit(stop_and_take, library, run.url, pid).result()
            )
            control.rpush(GO, 1)
            learned[library] = holder.result()
    return [
        figure_of(ROW, "next holder after, s", Better.LOWER, TAKEN, lambda it: median(waits[it])),
        figure_of(ROW, "it learns of it", Better.LOWER, TAKEN, learned.__getitem__),
    ]


def hold_stopped(library: type[Library], url: str) -> str:
    """Take the lock, be stopped by the other process, and return when this one learns of it."""
    lock = library(client_of(library, url), KEY, lease_s=LEASE_S)
    assert lock.acquire(wait_s=1), "a free lock was refused"
    with control_of(url) as control:
        control.rpush(HELD, os.getpid())
        await_sign(control, GO)
    if lock.knows_loss():
        return IN_TIME
    try:
        lock.release()
    except Exception:
        return LATE
    return NEVER


def stop_and_take(library: type[Library], url: str, holder: int) -> float:
    """Stop a holder, take its lock and let it go on; return how long that took."""
    lock = library(client_of(library, url), KEY)
    with stopped(holder):
        stopped_at = time.monotonic()
        assert lock.acquire(), "the lock of a stopped holder was not granted"
        return time.monotonic() - stopped_at
