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
from seckill_site.process_memory import Latest, Memory
from seckill_site.redis.ledger_connection import ledger_connection

REFRESH_S = 10.0
"""How old an answer may be before Redis is asked again."""

STEP_MS = 2_000
"""A clock that is off by more after a while was set."""

HOLD_S = 60.0
"""How long nothing is taken from anybody after that: Note [Two clocks] in ``steps.py``."""


class _Reading(NamedTuple):
    """An answer of Redis, and when it came by this process's monotonic clock."""

    now_ms: int
    read_at_s: float

    def now(self) -> int:
        return self.now_ms + round((monotonic() - self.read_at_s) * 1000)


_clock = Latest[_Reading | None](None, for_s=REFRESH_S)
_before_step = Memory[None, _Reading](most=1, for_s=HOLD_S)


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
    return reading.now()


def steady_ledger_ms() -> int:
    """Return the time of Redis as it was before it was set, for a minute after that."""
    before = _before_step.recall(None)
    return before.now() if before else ledger_now_ms(may_wait=False)


def refresh_ledger_time() -> None:
    """Ask Redis for its time; keep the last answer if it does not respond."""
    try:
        learn_ledger_time(ledger_connection().time())
    except RedisError:
        _clock.trust(for_s=1.0 if _clock.value is None else REFRESH_S)


def learn_ledger_time(reply: Sequence[Any]) -> None:
    """Take over the time from a reply of Redis to ``TIME`` that came just now."""
    reading, before = _Reading(in_ms(reply), monotonic()), _clock.value
    if before and abs(reading.now_ms - before.now()) > STEP_MS:
        _before_step.keep(None, before)
    _clock.learn(reading)


def read_ledger_ms() -> int:
    """Ask Redis for its time, and return it in milliseconds since 1970.

    :raises redis.RedisError: it does not respond.
    """
    return in_ms(ledger_connection().time())


def in_ms(reply: Sequence[Any]) -> int:
    """Return a reply of Redis to ``TIME`` in milliseconds since 1970."""
    seconds, micros = map(int, reply)
    return seconds * 1000 + micros // 1000
