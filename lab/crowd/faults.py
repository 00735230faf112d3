"""The faults of a race: a process is killed, a process freezes, Redis comes back empty.

A fault occurs in mid-sale, when a share of the units is promised. The first process that then
reaches a named point, with a unit taken and nothing committed, sends the signal to itself: a signal
from outside would rarely hit that moment. Everything after that is real.
"""

import signal
from contextlib import suppress
from enum import StrEnum

from redis.exceptions import RedisError

from lab.locks import LEASE_MS
from lab.waiting import wait_until
from seckill_site.redis.ledger_connection import ledger_connection

SHARE = 0.3
"""Share of the stock that is promised when the fault comes."""

PAUSE_S = 3 * LEASE_MS / 1_000
"""Seconds for which a process is frozen: longer than any lease of the lab."""

REDIS_AWAY_S = 10.0
"""Seconds that Redis may be away before the race gives up."""

POINTS = frozenset({"unit taken", "order written"})
"""Points at which a process may signal itself; with ours, it does so between two presses."""


class Fault(StrEnum):
    """The fault of a race."""

    NONE = "none"
    KILL = "kill"
    PAUSE = "pause"
    REDIS_RESTART = "redis-restart"
    INSTANCES = "instances"  # behind nginx; one of them is killed whole


SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.PAUSE: signal.SIGSTOP}
"""The signal that a process sends itself for a fault."""


class RedisStaysAway(Exception):
    """Redis was shut down, and nothing has restarted it."""


def promises_before(stock: int) -> int:
    """Return the number of promises before the fault."""
    return int(stock * SHARE)


def end_redis() -> None:
    """Shut Redis down without saving; its supervisor restarts it empty."""
    with suppress(RedisError):  # the connection ends instead of an answer
        ledger_connection().shutdown(nosave=True)


def wait_for_redis() -> None:
    """Wait until Redis responds.

    :raises RedisStaysAway: Redis did not respond in time.
    """
    if not wait_until(_pings, within_s=REDIS_AWAY_S):
        raise RedisStaysAway(f"Redis did not come back within {REDIS_AWAY_S:g} s")


def _pings() -> bool:
    with suppress(RedisError):
        return bool(ledger_connection().ping())
    return False
