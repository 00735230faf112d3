"""Processes: pools of fresh processes, process families, and processor time.

The time is that of each process's own clock (``clock_getcpuclockid(3)``), kernel and all threads
included: the same as ``utime`` and ``stime`` of ``/proc/PID/stat``, which are rounded to 10 ms.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path

_CPUCLOCK_SCHED = 2

spawned = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
"""Fresh processes, which inherit no thread and no connection."""


def cpu_s(pids: Iterable[int]) -> float:
    """Return the processor time of these processes, in seconds."""
    return sum(time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED) for pid in pids)


@contextmanager
def cpu_spent(*groups: Sequence[int]) -> Iterator[list[float]]:
    """Fill the list, at the end, with the processor time that each group of processes spent."""
    before = [cpu_s(pids) for pids in groups]
    spent: list[float] = []
    yield spent
    spent += [cpu_s(pids) - was for pids, was in zip(groups, before, strict=True)]


def wake_ups(pids: Iterable[int]) -> Counter[str]:
    """Return how often each thread of these processes waited for something and went on.

    A later result minus an earlier one leaves out the threads that have ended.
    """
    counts = Counter[str]()
    for file in (it for pid in pids for it in Path(f"/proc/{pid}/task").glob("*/status")):
        with suppress(OSError):  # it has ended
            switches = file.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]
            counts[str(file)] = int(switches)
    return counts


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it go on after the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def family_of(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    family = [pid]
    for member in family:  # grows during the loop
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                family += map(int, children.read_text().split())
    return family
