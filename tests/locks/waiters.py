"""Threads that wait for a lock, and how to see that they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from redis import Redis

from locks import RedisLock, wait_queues, watchdog
from locks.protocol import Answer, Request, side_key
from tests.support.patience import wait_for

NAME = "lock:{t}:sale"
HELD_MS, LONG_MS = 60_000, 20_000
AT_ONCE_S = 20.0
"""Long before a ``patient`` waiter looks by itself, with room for a machine that stalls."""
A_WHILE_S = 0.7
"""How long one who is not woken is watched."""


def replaceable_answers(
    lock: RedisLock, patch: pytest.MonkeyPatch
) -> Callable[[Callable[[], Answer]], None]:
    """Return a function that replaces the answers to a lock while no question is in flight."""
    real, asking, replaced = lock._ask, threading.Lock(), list[Callable[[], Answer]]()

    def ask(request: Request) -> Answer:
        with asking:
            return replaced[-1]() if replaced else real(request)

    def replace(answer: Callable[[], Answer]) -> None:
        with asking:
            replaced.append(answer)

    patch.setattr(lock, "_ask", ask)
    return replace


def watchdogs() -> int:
    """Return how many threads of this process renew leases."""
    return sum(thread.name == watchdog.THREAD_NAME for thread in threading.enumerate())


def in_room(client: Redis, topic: str = NAME) -> int:
    """Return how many threads of this process wait for a lock."""
    return wait_queues._queues_of(client).count(topic)


def is_noted(client: Redis, name: str = NAME) -> bool:
    """Say whether Redis knows of somebody who waits: it has asked, and listens."""
    return bool(client.exists(side_key(name, "waiting")))


def held_lock(client: Redis, name: str = NAME) -> RedisLock:
    """Return a lock that this thread holds for longer than the test."""
    lock = RedisLock(client, name)
    lock.acquire(lease_ms=HELD_MS)
    return lock


def noted_waiter(
    pool: ThreadPoolExecutor, client: Redis, lock: RedisLock | None = None
) -> Future[float]:
    """Return a thread that waits for a lock, once Redis knows of it."""
    waiter = pool.submit(pass_through, lock or RedisLock(client, NAME))
    wait_for(lambda: is_noted(client), what="the note of the waiter")
    return waiter


def assert_wakes(release: Callable[[], object], *waiters: Future[float]) -> None:
    """Release, and check that each waiter has the lock at once."""
    released_at = time.monotonic()
    release()
    assert max(waiter.result(60) for waiter in waiters) - released_at < AT_ONCE_S


def pass_through(lock: RedisLock, *, wait_ms: int = LONG_MS) -> float:
    """Wait for a lock, let go of it, and return when it was had."""
    with lock.holding(wait_ms=wait_ms, lease_ms=HELD_MS):
        return time.monotonic()
