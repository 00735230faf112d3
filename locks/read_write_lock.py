"""A lock that many may hold to read, or one to write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from redis import Redis

from locks import scripts
from locks.hold import LetGo, held_here
from locks.multi_lock import let_go_of_many
from locks.protocol import Answer, ReleaseResult, Request, readers_key
from locks.redis_lock import RedisLock
from locks.waiting import wake_here


class ReadWriteLock:
    """Two locks of one name: ``read``, which readers share, and ``write``, which nobody shares.

    A writer that waits keeps new readers out. Who writes may also read, and keeps reading after
    letting go of the writing; who only reads cannot come to write.
    """

    def __init__(self, client: Redis, name: str, **options: Any) -> None:
        """Name the lock; the options are those of ``RedisLock``, a fencing token is a writer's."""
        fence = {key: options.pop(key) for key in ("fence_key", "fence_floor") if key in options}
        self.read = ReadLock(client, name, **options)
        self.write = WriteLock(client, name, **options, **fence)


class ReadLock(RedisLock):
    """The side of a ``ReadWriteLock`` that is shared: each reader has a lease of its own."""

    _shared = True

    @property
    def _key(self) -> str:
        return readers_key(self.name)

    def _ask(self, request: Request) -> Answer:
        writing = held_here(self._client, self.name)
        writer = writing.owner if writing else ""
        return scripts.acquire_read(self._client, self.name, request, writer=writer)

    def _has_claim(self) -> bool:
        return held_here(self._client, self.name) is not None

    def _letter_go(self) -> LetGo:
        return partial(_stop_reading, self._client, self.name)


class WriteLock(RedisLock):
    """The side of a ``ReadWriteLock`` that excludes readers and writers."""

    def _take(self, lease_ms: int | None, *, wait_ms: int) -> bool:
        if held_here(self._client, readers_key(self.name)):
            raise RuntimeError(f"{self.name}: read by this thread, which would wait for itself")
        return super()._take(lease_ms, wait_ms=wait_ms)

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire_write(self._client, self.name, request)

    def _letter_go(self) -> LetGo:
        # That of many wakes all who wait: readers come in together.
        return partial(let_go_of_many, self._client, self.name)


def _stop_reading(client: Redis, name: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    try:
        return scripts.release_read(client, name, owner)
    finally:
        wake_here(client, [name])
