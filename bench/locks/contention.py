"""Rows 2 and 3: contended locks, by sixteen threads at once and by a waiter in another process.

For row 2, every thread notes when it asked for the lock, when it got it and when it started to
release it. All processes of a machine share the clock, so these times show the hand-over from one
thread to another, and whether two were ever inside at once.
"""

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from statistics import fmean, median
from typing import NamedTuple

from redis import Redis

from bench.locks.libraries import CONTENDED, Library, client_of
from bench.locks.run import CONTROL_TIMEOUT_S, Better, C, Figure, Run, Value, control_of, figure_of
from lab.verdict import percentile
from lab.waiting import wait_until

THREADS = 16
INSIDE_S = 0.0001  # a sleep, so that the interpreter's own lock does not exclude the threads
START_S = 20.0
MET = "two holders met"

WAKE_UP = "3 wake-up in another process"
KEY = "{bench}:waking"
HELD, HAD = "bench:held", "bench:had"
HELD_FOR_S = (0.01, 0.11)
"""Spread over redis-py's 0.1 s between attempts, so that the two do not run in step."""


# --- Row 2 ----------------------------------------------------------------------------------------


class Visit(NamedTuple):
    """One stay inside the lock; all times are nanoseconds of the monotonic clock."""

    visitor: tuple[int, int]  # process id, number of the thread
    asked_at: int
    got_at: int
    left_at: int
    in_time: bool  # got before the end of the round


Contend = Callable[..., list[Visit]]
"""Lets a library contend, given its class, the URL of Redis and the seconds of a round."""


@dataclass(frozen=True)
class Round:
    """The visits of one round of one library."""

    visits: list[Visit]  # in the order in which they got the lock
    seconds: float

    @property
    def counted(self) -> list[Visit]:
        return [visit for visit in self.visits if visit.in_time]

    def rate(self) -> float:
        return len(self.counted) / self.seconds

    def busiest_percent(self) -> float:
        """Return the share of the thread that got the lock most often."""
        by_visitor = Counter(visit.visitor for visit in self.counted)
        return 100 * max(by_visitor.values(), default=0) / max(1, by_visitor.total())

    def left_out(self) -> float:
        """Return the number of threads that never got the lock in time."""
        return float(THREADS - len({visit.visitor for visit in self.counted}))

    def hand_overs_ms(self) -> list[float]:
        """Return the times from the start of a release until another thread had the lock."""
        return [
            (after.got_at - before.left_at) / 1e6
            for before, after in pairwise(self.counted)
            if before.visitor != after.visitor
        ]

    def longest_wait_s(self) -> float:
        """Return the longest wait, also of threads that got the lock after the end."""
        return max(visit.got_at - visit.asked_at for visit in self.visits) / 1e9

    def meetings(self) -> int:
        """Return how often a thread entered before the previous one started to leave."""
        return sum(after.got_at < before.left_at for before, after in pairwise(self.visits))


def measure_crowd(run: Run) -> list[Figure]:
    figures: list[Figure] = []
    for row, processes in {"2 one key, 16 threads": 1, "2 one key, 4 processes × 4": 4}.items():
        contending = [partial(contend, processes=processes)] * processes
        figures += crowd_figures(run, row, CONTENDED, contending)
    return figures


def crowd_figures(
    run: Run, row: str, libraries: Sequence[type[C]], contending: Sequence[Contend]
) -> list[Figure]:
    """Measure some rounds of each library, in turn; each part of a crowd has a process."""
    rounds: defaultdict[type[C], list[Round]] = defaultdict(list)
    seconds = run.plan.contended_s
    for library in run.in_turn(libraries, rounds=run.plan.contended_rounds, what=row):
        visits = run.at_once(*[partial(it, library, run.url, seconds) for it in contending])
        in_order = sorted(chain.from_iterable(visits), key=lambda visit: visit.got_at)
        rounds[library].append(Round(in_order, seconds))

    def figure(name: str, value: Callable[[list[Round]], Value]) -> Figure:
        better = {"cycles/s": Better.HIGHER, MET: Better.ZERO}.get(name, Better.LOWER)
        return figure_of(row, name, better, libraries, lambda library: value(rounds[library]))

    return [
        figure("cycles/s", lambda of: median(it.rate() for it in of)),
        figure("busiest thread, %", lambda of: median(it.busiest_percent() for it in of)),
        figure("threads left out", lambda of: fmean(it.left_out() for it in of)),
        figure("hand-over median, ms", lambda of: _hand_over_ms(of, 50)),
        figure("hand-over p99, ms", lambda of: _hand_over_ms(of, 99)),
        figure("longest wait, s", lambda of: max(it.longest_wait_s() for it in of)),
        figure(MET, lambda of: float(sum(it.meetings() for it in of))),
    ]


def _hand_over_ms(rounds: Sequence[Round], percent: int) -> Value:
    all_ms = [ms for it in rounds for ms in it.hand_overs_ms()]
    return percentile(all_ms, percent) if all_ms else "none"


def contend(library: type[Library], url: str, seconds: float, *, processes: int) -> list[Visit]:
    """Run this process's share of the threads once all processes are ready."""
    client = client_of(library, url)
    threads = THREADS // processes
    with control_of(url) as control, ThreadPoolExecutor(threads) as pool:
        wait_for_all(control, processes)
        until = time.monotonic_ns() + int(seconds * 1e9)
        each = pool.map(partial(visits_of, library, client, until), range(threads))
        return list(chain.from_iterable(each))


def wait_for_all(control: Redis, processes: int) -> None:
    """Wait until all processes have called this.

    :raises TimeoutError: one did not call it in time
    """
    control.incr("bench:arrived")

    def are_all_here() -> bool:
        return int(control.get("bench:arrived") or 0) >= processes

    if not wait_until(are_all_here, within_s=START_S, every_s=0.001):
        raise TimeoutError("a process of the benchmark did not start")


def visits_of(library: type[Library], client: Redis, until: int, number: int) -> list[Visit]:
    """Take and release the lock, as one thread, until the time is over."""
    lock = library(client, "{bench}:contended")
    visitor = (os.getpid(), number)
    visits = []
    while (asked_at := time.monotonic_ns()) < until:
        if lock.acquire():
            got_at = time.monotonic_ns()
            time.sleep(INSIDE_S)
            left_at = time.monotonic_ns()
            lock.release()
            visits.append(Visit(visitor, asked_at, got_at, left_at, got_at < until))
    return visits


# --- Row 3 ----------------------------------------------------------------------------------------


def measure_wake_ups(run: Run) -> list[Figure]:
    wakes: defaultdict[type[Library], list[float]] = defaultdict(list)
    for library in run.in_turn(CONTENDED, rounds=run.plan.wake_rounds, what=WAKE_UP):
        calls = [partial(call, library, run.url, run.plan.wakes) for call in (hold, wait)]
        pairs = zip(*run.at_once(*calls), strict=True)
        wakes[library] += [(got_at - released_at) / 1e6 for released_at, got_at in pairs]

    def figure(name: str, percent: int) -> Figure:
        def value(library: type[Library]) -> float:
            return percentile(wakes[library], percent)

        return figure_of(WAKE_UP, name, Better.LOWER, CONTENDED, value)

    return [figure("median, ms", 50), figure("p99, ms", 99)]


def hold(library: type[Library], url: str, times: int) -> list[int]:
    """Hold the lock while the other process waits; return the start of each release (ns)."""
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
    """Wait for the lock while the other process holds it; return when it was granted (ns)."""
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


def await_sign(control: Redis, name: str) -> str:
    """Wait for a sign from the other process, and return it.

    :raises TimeoutError: none came in time
    """
    sign = control.blpop([name], timeout=CONTROL_TIMEOUT_S - 5)
    if sign is None:
        raise TimeoutError(f"the other process gave no sign: {name}")
    return str(sign[1])
