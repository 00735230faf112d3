"""Holders and waiters in processes of their own, and how to see from outside what they do."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis import Redis

from locks import FairLock, RedisLock
from tests.locks.steps import PATIENCE_S
from tests.support.patience import wait_for

NAME = "lock:{t}:sale"
FENCE = "lock:{t}:fence"
HAD, GO = "test:had", "test:go"
WAIT_MS = PATIENCE_S * 1_000


def hold_until_told(client: Redis, *, kind: type[RedisLock] = RedisLock) -> Callable[[], None]:
    """Return what a process does that holds the lock until the test says ``go``."""

    def work() -> None:
        with kind(client, NAME):
            client.rpush(HAD, f"holder {time.monotonic()}")
            take(client, GO)

    return work


def wait_for_it(
    client: Redis, who: str, *, kind: type[RedisLock] = RedisLock
) -> Callable[[], None]:
    """Return what a process does that waits for the lock, and tells when it had it."""

    def work() -> None:
        with kind(client, NAME).holding(wait_ms=WAIT_MS):
            client.rpush(HAD, f"{who} {time.monotonic()}")

    return work


def take(client: Redis, key: str) -> str:
    """Take the next message of another process; no blocking command, which would be timed out."""
    messages: list[str] = []

    def arrived() -> bool:
        message = client.lpop(key)
        if message is not None:
            messages.append(str(message))
        return bool(messages)

    wait_for(arrived, what=f"a message in {key}", seconds=PATIENCE_S)
    return messages[0]


def had(client: Redis) -> tuple[str, float]:
    """Return who had the lock next, and when by the clock that all processes share."""
    who, at_s = take(client, HAD).split()
    return who, float(at_s)


def waiting(client: Redis, *, kind: type[RedisLock] = RedisLock) -> int:
    """Count the processes, of a fair lock the threads, that wait for the lock."""
    return client.zcard(f"{NAME}:queue") if kind is FairLock else client.hlen(f"{NAME}:waiting")
