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
from seckill_site.ledger_connection import ledger_connection

REFRESH_S = 10.0
"""How old an answer may be before Redis is asked again."""


class _Reading(NamedTuple):
    """An answer of Redis, and when it came by this process's monotonic clock."""

    now_ms: int
    read_at_s: float


_last: _Reading | None = None
_next_at_s = 0.0
_first = threading.Lock()


def ledger_now_ms(*, may_wait: bool = True) -> int:
    """Return the time of Redis in milliseconds since 1970, without waiting for Redis.

    Only the first calls in a process wait, unless ``may_wait`` is false. If Redis has not responded
    to any, the clock of this machine has to do: without Redis nothing is sold anyway.
    """
    global _next_at_s
    if _last is None and may_wait:
        with _first:  # nobody is judged by the clock of this machine meanwhile
            if _last is None and monotonic() >= _next_at_s:
                refresh_ledger_time()
    elif _last is not None and monotonic() >= _next_at_s:
        _next_at_s = monotonic() + REFRESH_S
        with suppress(RuntimeError):  # no thread is available; the last answer is good enough
            threading.Thread(target=refresh_ledger_time, daemon=True).start()
    found = _last
    return now_ms() if found is None else found.now_ms + _ms_since(found.read_at_s)


def refresh_ledger_time() -> None:
    """Ask Redis for its time; keep the last answer if it does not respond."""
    global _next_at_s
    try:
        learn_ledger_time(ledger_connection().time())
    except RedisError:
        _next_at_s = monotonic() + (1.0 if _last is None else REFRESH_S)


def learn_ledger_time(reply: Sequence[Any]) -> None:
    """Take over the time from a reply of Redis to ``TIME`` that came just now."""
    global _last, _next_at_s
    _last = _Reading(_milliseconds(reply), monotonic())
    _next_at_s = monotonic() + REFRESH_S


def read_ledger_ms() -> int:
    """Ask Redis for its time, and return it in milliseconds since 1970.

    :raises redis.RedisError: it does not respond.
    """
    return _milliseconds(ledger_connection().time())


def _milliseconds(reply: Sequence[Any]) -> int:
    seconds, micros = map(int, reply)
    return seconds * 1000 + micros // 1000


def _ms_since(at_s: float) -> int:
    return round((monotonic() - at_s) * 1000)
