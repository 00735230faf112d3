"""The time of the ledger's Redis, by which sales open and end and purchase tokens expire.

Web servers ask for it seldom, not with each request: between two answers the monotonic clock of
the process counts on. The wall clock of the machine decides nothing (``docs/adr/0021``).
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from seckill_site.clocks.machine import now_ms
from seckill_site.process_memory import Latest
from seckill_site.redis.ledger_connection import ledger_connection

REFRESH_S = 10.0
"""How old an answer may be before Redis is asked again."""


class _Reading(NamedTuple):
    """An answer of Redis, and when it came by this process's monotonic clock."""

    now_ms: int
    read_at_s: float


_clock = Latest[_Reading | None](None, for_s=REFRESH_S)


def ledger_now_ms(*, may_wait: bool = True) -> int:
    """Return the time of Redis in milliseconds since 1970, without waiting for Redis.

    Only the first calls in a process wait, unless ``may_wait`` is false. If Redis has not responded
    to any, the clock of this machine has to do: without Redis nothing is sold anyway.
    """
    reading = _clock.value
    if reading is not None and _clock.claim():
        with suppress(RuntimeError):  # no thread is available; the last answer is good enough
            threading.Thread(target=refresh_ledger_time, daemon=True).start()
    elif reading is None and may_wait:  # nobody is judged by the clock of this machine meanwhile
        _clock.refresh(refresh_ledger_time, wait=True)
        reading = _clock.value
    if reading is None:
        return now_ms()
    return reading.now_ms + round((monotonic() - reading.read_at_s) * 1000)


def refresh_ledger_time() -> None:
    """Ask Redis for its time; keep the last answer if it does not respond."""
    try:
        learn_ledger_time(ledger_connection().time())
    except RedisError:
        _clock.trust(for_s=1.0 if _clock.value is None else REFRESH_S)


def learn_ledger_time(reply: Sequence[Any]) -> None:
    """Take over the time from a reply of Redis to ``TIME`` that came just now."""
    _clock.learn(_Reading(_milliseconds(reply), monotonic()))


def read_ledger_ms() -> int:
    """Ask Redis for its time, and return it in milliseconds since 1970.

    :raises redis.RedisError: it does not respond.
    """
    return _milliseconds(ledger_connection().time())


def _milliseconds(reply: Sequence[Any]) -> int:
    seconds, micros = map(int, reply)
    return seconds * 1000 + micros // 1000
