"""The faults of a race: a process is killed, one stands still, Redis comes back empty.

A fault comes in mid-sale, when a share of the units is promised. The first process that then comes
to a named point, with a unit taken and nothing committed, sends the signal to itself: one from
outside would meet it there only now and then. Everything after that is real.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from redis.exceptions import RedisError

from lab.locks import LEASE_MS
from seckill_site.ledger_connection import ledger_connection

SHARE = 0.3
"""Share of the stock that is promised when the fault comes."""

PAUSE_S = 3 * LEASE_MS / 1_000
"""How long a process stands still: longer than any lease of the lab."""

REDIS_AWAY_S = 10.0
"""How long Redis may be away before the race gives up."""

POINTS = frozenset({"unit taken", "order written"})


class Fault(StrEnum):
    """The fault of a race."""

    NONE = "none"
    KILL = "kill"
    PAUSE = "pause"
    REDIS_RESTART = "redis-restart"


_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.PAUSE: signal.SIGSTOP}


class RedisStaysAway(Exception):
    """Redis was ended, and nothing has started it again."""


@dataclass(frozen=True)
class Strike:
    """A signal that a process sends itself at one of the points, once so many presses are promised.

    Without points it does so between two presses.
    """

    signum: int
    after: int
    points: frozenset[str]


def strike_of(fault: Fault, *, stock: int, has_points: bool) -> Strike | None:
    """Return the strike of a fault; None if the fault is not that of a process."""
    if fault not in _SIGNALS:
        return None
    return Strike(_SIGNALS[fault], promises_before(stock), POINTS if has_points else frozenset())


def promises_before(stock: int) -> int:
    """Return how many presses are promised a unit before the fault comes."""
    return int(stock * SHARE)


def end_redis() -> None:
    """End Redis without writing to its disk; whatever started it starts it again, empty."""
    with suppress(RedisError):  # the answer is the end of the connection
        ledger_connection().shutdown(nosave=True)


def wait_for_redis() -> None:
    """Wait until Redis answers.

    :raises RedisStaysAway: it did not in time.
    """
    until = time.monotonic() + REDIS_AWAY_S
    while True:
        with suppress(RedisError):
            ledger_connection().ping()
            return
        if time.monotonic() > until:
            raise RedisStaysAway
        time.sleep(0.02)
