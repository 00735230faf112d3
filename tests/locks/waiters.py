"""Threads that wait for a lock, and how to see that they do."""

from __future__ import annotations

import time

from redis import Redis

from locks import RedisLock, waiting
from locks.protocol import beside

NAME = "lock:{t}:sale"
HELD_MS, LONG_MS = 60_000, 20_000
AT_ONCE_S = 8.0
"""Long before a ``patient`` waiter looks by itself, with room for a machine that stalls."""
A_WHILE_S = 0.7
"""How long one who is not woken is watched."""


def in_room(client: Redis, topic: str = NAME) -> int:
    """Return how many threads of this process wait for a lock."""
    return waiting._switchboard(client).count(topic)


def is_noted(client: Redis, name: str = NAME) -> bool:
    """Say whether Redis knows of somebody who waits: it has asked, and listens."""
    return bool(client.exists(beside(name, "waiting")))


def pass_through(lock: RedisLock, *, wait_ms: int = LONG_MS) -> float:
    """Wait for a lock, let go of it, and return when it was had."""
    with lock.holding(wait_ms=wait_ms, lease_ms=HELD_MS):
        return time.monotonic()
