"""Locks for asyncio, by the protocol of ``RedisLock`` and ``FairLock``; see ``locks/README.md``."""

from locks.aio.lock import AsyncFairLock, AsyncRedisLock

__all__ = ["AsyncFairLock", "AsyncRedisLock"]
