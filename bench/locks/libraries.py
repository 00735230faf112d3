"""The compared locks, behind the same two calls and with their own defaults.

All get the same client (decoded replies, hiredis if installed) and the same lease.
"""

import itertools
from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, ClassVar

from redis import Connection, ConnectionPool, Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.lock import Lock as AsyncLock

from locks import LockBusy, RedisLock
from locks.aio import AsyncRedisLock

LEASE_S = 10
WAIT_S = 8
"""The longest wait for a lock: python-redis-lock allows at most the lease."""


class Compared(ABC):
    """A lock of one library, by its column in the table."""

    title: ClassVar[str]
    module: ClassVar[str]
    distribution: ClassVar[str | None] = None


class Library(Compared):
    """One thread's lock of one library."""

    socket_timeout_s: ClassVar[int] = 5
    wait_option: ClassVar[str] = "timeout"
    renewals_a_lease: ClassVar[float | None] = None
    """Automatic renewals per lease; the base of the round trips per renewal."""

    lease_option: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    _lock: Any

    def __init__(self, client: Redis, key: str, *, lease_s: int = LEASE_S) -> None:
        options = {self.lease_option: lease_s, **self.options}
        self._lock = import_module(self.module).Lock(client, key, **options)

    def acquire(self, *, wait_s: int = WAIT_S) -> bool:
        """Wait for the lock at most this long; return whether it was granted."""
        return bool(self._lock.acquire(**{self.wait_option: wait_s}))

    def release(self) -> None:
        """Release the lock.

        :raises Exception: the library's own, if the lock was lost
        """
        self._lock.release()

    def knows_loss(self) -> bool:
        """Return whether the holder can tell, without asking Redis, that the lock is lost."""
        return False


class Ours(Library):
    title = "ours"
    module = "locks"
    renewals_a_lease = 3

    def __init__(self, client: Redis, key: str, *, lease_s: int = LEASE_S) -> None:
        self._lock = RedisLock(client, key, lease_ms=lease_s * 1000)

    def acquire(self, *, wait_s: int = WAIT_S) -> bool:
        try:
            self._lock.acquire(wait_ms=wait_s * 1000)
        except LockBusy:
            return False
        return True

    def knows_loss(self) -> bool:
        return bool(self._lock.lost)


class RedisPy(Library):
    """redis-py's lock, which sleeps 0.1 s between its attempts unless told otherwise."""

    title = "redis-py"
    module = "redis.lock"
    distribution = "redis"
    lease_option, wait_option = "timeout", "blocking_timeout"


class EagerRedisPy(RedisPy):
    """redis-py's lock at a hundred times its default rate of attempts."""

    title = "redis-py (sleep=0.001)"
    options = {"sleep": 0.001}


class PythonRedisLock(Library):
    title = "python-redis-lock"
    module = "redis_lock"
    distribution = "python-redis-lock"
    lease_option = "expire"
    socket_timeout_s = 30  # its BLPOP waits longer than redis-py's 5 s


class RenewingPythonRedisLock(PythonRedisLock):
    """python-redis-lock with the renewal that our lock has by default."""

    title = "python-redis-lock (auto_renewal)"
    renewals_a_lease = 3 / 2
    options = {"auto_renewal": True}


class Pottery(Library):
    """pottery's Redlock over a single node."""

    title = "pottery"
    module = "pottery"  # imported late, because it replaces json.dumps
    distribution = "pottery"

    def __init__(self, client: Redis, key: str, *, lease_s: int = LEASE_S) -> None:
        redlock = import_module(self.module).Redlock
        self._lock = redlock(key=key, masters={client}, auto_release_time=lease_s)


class AsyncLibrary(Compared):
    """One task's lock of one library."""

    _lock: Any

    @abstractmethod
    def __init__(self, client: AsyncRedis, key: str) -> None: ...

    async def acquire(self) -> bool:
        """Wait for the lock at most ``WAIT_S``; return whether it was granted."""
        return bool(await self._lock.acquire())

    async def release(self) -> None:
        await self._lock.release()


class AsyncOurs(AsyncLibrary):
    title = Ours.title
    module = "locks"

    def __init__(self, client: AsyncRedis, key: str) -> None:
        self._lock = AsyncRedisLock(client, key, lease_ms=LEASE_S * 1000)

    async def acquire(self) -> bool:
        try:
            await self._lock.acquire(wait_ms=WAIT_S * 1000)
        except LockBusy:
            return False
        return True


class AsyncRedisPy(AsyncLibrary):
    title = RedisPy.title
    module = "redis.asyncio.lock"
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, client: AsyncRedis, key: str) -> None:
        options = {"timeout": LEASE_S, "blocking_timeout": WAIT_S, **self.options}
        self._lock = AsyncLock(client, key, **options)


class AsyncEagerRedisPy(AsyncRedisPy):
    title = EagerRedisPy.title
    options = EagerRedisPy.options


class AsyncPottery(AsyncLibrary):
    """pottery's AIORedlock over a single node, which waits as long as it takes."""

    title = Pottery.title
    module = "pottery"

    def __init__(self, client: AsyncRedis, key: str) -> None:
        redlock = import_module(self.module).AIORedlock
        self._lock = redlock(key=key, masters={client}, auto_release_time=LEASE_S)


ASYNC = (AsyncOurs, AsyncRedisPy, AsyncEagerRedisPy, AsyncPottery)
ALL = (Ours, RedisPy, EagerRedisPy, PythonRedisLock, RenewingPythonRedisLock, Pottery)
TAKEN = (Ours, RedisPy, PythonRedisLock, RenewingPythonRedisLock, Pottery)
CONTENDED = (Ours, RedisPy, EagerRedisPy, PythonRedisLock, Pottery)
HELD = (Ours, RedisPy, RenewingPythonRedisLock, Pottery)


def is_installed(library: type[Compared]) -> bool:
    return find_spec(library.module) is not None


def versions() -> dict[str, str]:
    """Return the versions of the installed packages by their names."""
    installed = [library for library in ALL if is_installed(library)]
    names = dict.fromkeys(library.distribution for library in installed if library.distribution)
    return {name: metadata.version(name) for name in names}


class CountingConnection(Connection):
    """A connection that counts the writes of this process: one write is one round trip."""

    writes = itertools.count()  # its next() is atomic, unlike += among threads

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        next(self.writes)
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


@cache
def client_of(library: type[Library], url: str, *, counting: bool = False) -> Redis:
    """Return this process's client for a library, cached so that connecting is not measured."""
    pool = ConnectionPool.from_url(
        url,
        connection_class=CountingConnection if counting else Connection,
        decode_responses=True,
        socket_timeout=library.socket_timeout_s,
        max_connections=4000,  # a thread for each of 1,000 locks must not run out of them
    )
    return Redis(connection_pool=pool)
