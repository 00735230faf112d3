"""What may befall a race: a process is killed, one stands still, Redis comes back empty.

A fault comes in mid-sale, when a share of the units is promised. The first process that then comes
to a named point, with a unit taken and nothing committed, is struck there by its own hand: a signal
from outside would find it there only now and then. What follows is real: nobody is told.
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
"""So much of the stock is promised when the fault comes."""

PAUSE_S = 3 * LEASE_MS / 1_000
"""How long a process stands still: longer than any lease of the lab."""

AWAY_S = 10.0
"""How long Redis may be away before the race gives up."""

POINTS = frozenset({"unit taken", "order written"})


class Fault(StrEnum):
    """One a race, or none."""

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

    Where there are no points it does so between two presses.
    """

    signum: int
    after: int
    points: frozenset[str]


def strike_of(fault: Fault, *, stock: int, has_points: bool) -> Strike | None:
    """Return what the struck process does; None where the fault is not that of a process."""
    if fault not in _SIGNALS:
        return None
    return Strike(_SIGNALS[fault], promises_before(stock), POINTS if has_points else frozenset())


def promises_before(stock: int) -> int:
    """Return how many presses are promised a unit before the fault comes."""
    return int(stock * SHARE)


def end_redis() -> None:
    """End Redis without a word to its disk; who started it starts it again, empty."""
    with suppress(RedisError):  # the answer is the end of the connection
        ledger_connection().shutdown(nosave=True)


def wait_for_redis() -> None:
    """Wait until Redis answers.

    :raises RedisStaysAway: it did not in time.
    """
    until = time.monotonic() + AWAY_S
    while True:
        with suppress(RedisError):
            ledger_connection().ping()
            return
        if time.monotonic() > until:
            raise RedisStaysAway
        time.sleep(0.02)
