"""The clocks of the shop's machines and of the database, compared with that of Redis, for staff.

They decide nothing (``docs/adr/0021``). But one that is wrong puts wrong times into logs and mails,
and ends sessions early or late.
"""

import datetime as dt
import socket
from contextlib import suppress
from time import monotonic
from typing import Any

from celery.signals import before_task_publish
from redis.exceptions import RedisError, ResponseError

from seckill_site.clocks.ledger import read_ledger_ms
from seckill_site.clocks.machine import epoch_ms, now_ms
from seckill_site.process_memory import Latest
from seckill_site.redis.ledger_connection import ledger_connection

CLOCKS = "seckill:clocks"
"""The key of the last comparisons: a clock -> <ms ahead of Redis> <time of Redis in ms>."""

REPORT_S = 10.0
KEPT_MS = 60_000
"""A comparison that is older does not count: its process has ended."""

TOLERATED_MS = 1_000
SLOWEST_S = 0.5
"""Clocks that took longer to read were not read at the same time."""

_report = Latest(None, for_s=REPORT_S)


def report_clocks(part: str, *, database_now: dt.datetime | None = None) -> None:
    """Compare this machine's clock with that of Redis, every ten seconds; never raises.

    ``database_now`` is the time of the database, read just now.
    """
    if not _report.claim():
        return
    with suppress(RedisError):
        client, started = ledger_connection(), monotonic()
        clocks = {f"{part} {socket.gethostname()}": now_ms()}
        if database_now:
            clocks["database"] = epoch_ms(database_now)
        redis_ms = read_ledger_ms()
        if monotonic() - started > SLOWEST_S:
            return
        offsets = {name: f"{clock_ms - redis_ms} {redis_ms}" for name, clock_ms in clocks.items()}
        try:
            client.hset(CLOCKS, mapping=offsets)
            client.pexpire(CLOCKS, 10 * KEPT_MS)
        except ResponseError:  # a key of another type, from a mistyped command
            client.delete(CLOCKS)


def clocks_ahead_s() -> dict[str, float]:
    """Return by how many seconds each clock is ahead of Redis; empty if Redis does not respond."""
    try:
        redis_ms, offsets = read_ledger_ms(), ledger_connection().hgetall(CLOCKS)
    except RedisError:
        return {}
    ahead_s = {}
    for name, value in sorted(offsets.items()):
        with suppress(ValueError):
            ahead_ms, at_ms = map(int, value.split())
            if abs(redis_ms - at_ms) <= KEPT_MS:
                ahead_s[name] = ahead_ms / 1000
    return ahead_s


def wrong_clocks() -> dict[str, float]:
    """Return the clocks that differ from Redis by more than a second, as above."""
    clocks = clocks_ahead_s().items()
    return {name: ahead_s for name, ahead_s in clocks if abs(ahead_s) * 1000 > TOLERATED_MS}


def report_from_beat(**_: Any) -> None:
    """Let beat report its clock whenever it sends a task."""
    before_task_publish.connect(lambda **_: report_clocks("beat"), weak=False)
