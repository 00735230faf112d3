"""Locks as they are usually told, each a step nearer to ``RedisLock``, and how to break them.

The steps share ``acquire() -> bool`` and ``release()``. They call ``at`` with the name of the point
that they have reached, where their weakness lies, so that a test can put there what it likes.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from locks import LockBusy, RedisLock

T = TypeVar("T")

PATIENCE_S = 30
"""How long a test waits for a thread or a process before it fails."""


# --- Five locks ----------------------------------------------------------------------------------


@dataclass
class Step:
    """What the steps have in common; the first three write ``owner`` but never look at it."""

    client: Redis
    name: str
    lease_ms: int = 10_000
    at: Callable[[str], object] = lambda point: None
    owner: str = field(default_factory=lambda: secrets.token_hex(8))


class Setnx(Step):
    """Step 1: ``SETNX``, later ``DEL``."""

    def acquire(self) -> bool:
        return bool(self.client.setnx(self.name, self.owner))

    def release(self) -> None:
        self.client.delete(self.name)


class SetnxThenExpire(Setnx):
    """Step 2: a lease, given by a second command."""

    def acquire(self) -> bool:
        if not super().acquire():
            return False
        self.at("taken")
        return bool(self.client.pexpire(self.name, self.lease_ms))


class SetWithLease(Setnx):
    """Step 3: the lock and its lease in one command."""

    def acquire(self) -> bool:
        return bool(self.client.set(self.name, self.owner, nx=True, px=self.lease_ms))


class CheckThenDelete(SetWithLease):
    """Step 4: only the owner deletes, by a look first and the deletion after."""

    def release(self) -> None:
        if self.client.get(self.name) == self.owner:
            self.at("checked")
            self.client.delete(self.name)


class CheckInLua(SetWithLease):
    """Step 5: the look and the deletion in one script."""

    SCRIPT = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"

    def release(self) -> None:
        self.client.eval(self.SCRIPT, 1, self.name, self.owner)


# --- The sixth -----------------------------------------------------------------------------------


class InThread:
    """A ``RedisLock`` in a thread of its own, since its thread is what it takes for its holder."""

    def __init__(self, lock: RedisLock) -> None:
        self.lock = lock
        self._thread = ThreadPoolExecutor(1)

    def run(self, function: Callable[..., T], **arguments: object) -> T:
        return self._thread.submit(function, **arguments).result(timeout=PATIENCE_S)

    def acquire(self, *, wait_ms: int = 0) -> bool:
        try:
            self.run(self.lock.acquire, wait_ms=wait_ms)
        except LockBusy:
            return False
        return True

    def release(self) -> None:
        self.run(self.lock.release)

    def owned(self) -> bool:
        return self.run(self.lock.owned)

    @property
    def lost(self) -> bool:
        return self.run(lambda: self.lock.lost)

    @property
    def fencing_token(self) -> int | None:
        return self.run(lambda: self.lock.fencing_token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.shutdown()


# --- Ways to die ---------------------------------------------------------------------------------


@contextmanager
def child(work: Callable[[], object]) -> Iterator[BaseProcess]:
    """Run a function in a forked process, which does not outlive the block."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(PATIENCE_S)


def killed(work: Callable[[], object]) -> bool:
    """Run a function in a process of its own; tell whether that was ended by ``kill -9``."""
    with child(work) as process:
        process.join(PATIENCE_S)
        return process.exitcode == -signal.SIGKILL


def die(point: str = "") -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(process: BaseProcess) -> bool:
    """Tell whether a child stands still."""
    assert process.pid is not None
    return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None


# --- Replies -------------------------------------------------------------------------------------


def watched_client(client: Redis, replied: Callable[[], object]) -> Redis:
    """Return a client like this one that calls a function before it takes in a reply.

    It sends a command again where the connection fails, as clients of redis-py do by default.
    """
    pool = client.connection_pool

    class Watched(pool.connection_class):  # type: ignore[name-defined]
        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            reply = super().read_response(*args, **kwargs)
            replied()
            return reply

    options = {**pool.connection_kwargs, "retry": Retry(NoBackoff(), 1)}
    return Redis(connection_pool=ConnectionPool(connection_class=Watched, **options))


def lossy_client(client: Redis, when: Callable[[], object]) -> Redis:
    """Return a client that loses one reply: the first for which ``when`` is true."""
    lost: list[bool] = []

    def replied() -> None:
        if not lost and when():
            lost.append(True)
            raise RedisConnectionError("the test lost the reply")

    return watched_client(client, replied)


# --- What the lock is for ------------------------------------------------------------------------


class Store:
    """One row of a database that several processes write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run("CREATE TABLE sale (writer TEXT, fence INTEGER, stock INTEGER)")
        self._run("INSERT INTO sale VALUES ('nobody', 0, 1)")

    @property
    def writer(self) -> str:
        with closing(sqlite3.connect(self._path)) as database:
            return str(database.execute("SELECT writer FROM sale").fetchone()[0])

    def write_unchecked(self, writer: str) -> bool:
        return self._run("UPDATE sale SET writer = ?", writer)

    def write(self, writer: str, token: int | None) -> bool:
        """Write, unless a higher fencing token was seen."""
        sql = "UPDATE sale SET writer = ?1, fence = ?2 WHERE fence <= ?2"
        return self._run(sql, writer, token)

    def sell_one(self) -> bool:
        """Sell a piece, if there is one."""
        return self._run("UPDATE sale SET stock = stock - 1 WHERE stock > 0")

    def _run(self, sql: str, *values: str | int | None) -> bool:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as database:
            return database.execute(sql, values).rowcount == 1
