"""Row 6: locks for asyncio, uncontended and contended by the tasks of one event loop."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from statistics import median
from typing import TypeVar

from redis.asyncio import Redis

from bench.locks.contention import INSIDE_S, THREADS, Visit, crowd_figures
from bench.locks.libraries import ASYNC, AsyncLibrary
from bench.locks.run import Better, Figure, Run, figure_of
from bench.locks.uncontended import WARM_UP_CYCLES

ROW, CROWD_ROW = "6 asyncio, uncontended", f"6 asyncio, one key, {THREADS} tasks"

T = TypeVar("T")


def measure_event_loops(run: Run) -> list[Figure]:
    rates: defaultdict[type[AsyncLibrary], list[float]] = defaultdict(list)
    for library in run.in_turn(ASYNC, rounds=run.plan.cycle_rounds, what=ROW):
        rates[library] += run.at_once(partial(in_loop, rate, library, run.url, run.plan.cycle_s))
    figure = figure_of(ROW, "cycles/s", Better.HIGHER, ASYNC, lambda it: median(rates[it]))
    return [figure, *crowd_figures(run, CROWD_ROW, ASYNC, [partial(in_loop, contend)])]


def in_loop(
    measure: Callable[[type[AsyncLibrary], Redis, float], Awaitable[T]],
    library: type[AsyncLibrary],
    url: str,
    seconds: float,
) -> T:
    """Measure in an event loop of this process."""

    async def main() -> T:
        redis = Redis.from_url(url, decode_responses=True, socket_timeout=5)
        async with aclosing(redis) as client:
            return await measure(library, client, seconds)

    return asyncio.run(main())


async def rate(library: type[AsyncLibrary], client: Redis, seconds: float) -> float:
    """Return cycles per second, after a few that are not counted."""
    lock = library(client, "{bench}:uncontended")
    await cycles(lock, WARM_UP_CYCLES)
    done = 0
    started_at = time.perf_counter()
    while (elapsed_s := time.perf_counter() - started_at) < seconds:
        await cycles(lock, 1)
        done += 1
    return done / elapsed_s


async def cycles(lock: AsyncLibrary, count: int) -> None:
    for _ in range(count):
        assert await lock.acquire(), "a free lock was refused"
        await lock.release()


async def contend(library: type[AsyncLibrary], client: Redis, seconds: float) -> list[Visit]:
    until = time.monotonic_ns() + int(seconds * 1e9)
    each = await asyncio.gather(*(visits_of(library, client, until, n) for n in range(THREADS)))
    return [visit for visits in each for visit in visits]


async def visits_of(
    library: type[AsyncLibrary], client: Redis, until: int, number: int
) -> list[Visit]:
    """Take and release the lock, as one task, until the time is over."""
    visits = []
    while (asked_at := time.monotonic_ns()) < until:
        lock = library(client, "{bench}:contended")
        if await lock.acquire():
            got_at = time.monotonic_ns()
            await asyncio.sleep(INSIDE_S)
            left_at = time.monotonic_ns()
            await lock.release()
            visits.append(Visit((os.getpid(), number), asked_at, got_at, left_at, got_at < until))
    return visits
