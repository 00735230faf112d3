"""A lock that many readers or one writer may hold."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from redis import Redis

from locks import scripts
from locks.hold import ReleaseCall, held_by_thread
from locks.multi_lock import release_many
from locks.protocol import Answer, ReleaseResult, Request, readers_key, server_of
from locks.redis_lock import RedisLock
from locks.wait_queues import wake_here


class ReadWriteLock:
    """Two locks of one name: ``read``, which readers share, and ``write``, which nobody shares.

    A waiting writer keeps new readers out. A writer may also read, and keeps reading after it
    releases the write lock. A reader cannot become a writer.
    """

    def __init__(self, client: Redis, name: str, **options: Any) -> None:
        """Name the lock; the options are those of ``RedisLock``, with fencing for writers only."""
        fence = {key: options.pop(key) for key in ("fence_key", "fence_floor") if key in options}
        self.read = ReadLock(client, name, **options)
        self.write = WriteLock(client, name, **options, **fence)


class ReadLock(RedisLock):
    """The shared side of a ``ReadWriteLock``: each reader has a lease of its own."""

    _shared = True

    @property
    def _key(self) -> str:
        return readers_key(self.name)

    def _ask(self, request: Request) -> Answer:
        writing = held_by_thread(server_of(self._client), self.name)
        writer = writing.owner if writing else ""
        return scripts.acquire_read(self._client, self.name, request, writer=writer)

    def _asks_at_once(self) -> bool:
        return held_by_thread(server_of(self._client), self.name) is not None

    def _release_call(self) -> ReleaseCall:
        return partial(_release, self._client, self.name)


class WriteLock(RedisLock):
    """The side of a ``ReadWriteLock`` that excludes readers and writers."""

    def _take(self, lease_ms: int | None, *, wait_ms: int) -> bool:
        if held_by_thread(server_of(self._client), readers_key(self.name)):
            raise RuntimeError(f"{self.name}: read by this thread, which would wait for itself")
        return super()._take(lease_ms, wait_ms=wait_ms)

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire_write(self._client, self.name, request)

    def _release_call(self) -> ReleaseCall:
        # ``release_many`` wakes all waiters, so that readers enter together.
        return partial(release_many, self._client, self.name)


def _release(client: Redis, name: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    try:
        return scripts.release_read(client, name, owner)
    finally:
        wake_here(client, [name])
