"""One lock for many processes, kept in Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from redis import Redis

from locks import scripts
from locks.hold import Hold
from locks.scripts import AcquireResult
from locks.waiting import attempts


class LockBusy(Exception):
    """The lock is held by somebody else, and was for as long as we were ready to wait."""


class RedisLock:
    """A lock with a lease, held by one thread of one process at a time; see ``locks/README.md``.

    ``name`` and ``fence_key`` are whole keys of one hash tag. Every call that asks Redis may raise
    ``redis.RedisError``: unknown what happened, and the same call may be made again.
    """

    def __init__(
        self,
        client: Redis,
        name: str,
        *,
        lease_ms: int = 10_000,
        renew: bool = True,
        fence_key: str | None = None,
        fence_floor: int = 0,
    ) -> None:
        scripts.check_fence(fence_floor)
        self.name = name
        self._client = client
        self._lease_ms = lease_ms
        self._fence_key = fence_key
        self._fence_floor = fence_floor
        self._hold = Hold(client, (name,), lease_ms=lease_ms, renew=renew)

    def acquire(self, *, wait_ms: int = 0) -> None:
        """Take the lock, waiting at most ``wait_ms``.

        :raises LockBusy: not had within that time
        :raises RuntimeError: this thread holds it already, through this object
        :raises redis.RedisError: unknown whether it was taken; acquire again or release
        """
        owner = self._hold.begin()
        for _ in attempts(wait_ms=wait_ms):
            if self._attempt(owner):
                return
        raise LockBusy(self.name)

    def release(self) -> None:
        """Let go of the lock; nobody else's is ever touched.

        :raises LockNotOwned: not held by this thread, or expired, or taken over meanwhile
        :raises redis.RedisError: unknown whether it was let go; release again, or leave it to its
            lease, which is no longer renewed
        """
        self._hold.release()

    def extend(self) -> None:
        """Take a whole lease from now, for a holder that renews by hand.

        :raises LockNotOwned: not held by this thread, or lost
        """
        self._hold.extend()

    def owned(self) -> bool:
        """Ask Redis whether this thread holds the lock at this moment."""
        owner = self._hold.owner
        return owner is not None and scripts.is_owner(self._client, self.name, owner)

    @property
    def lost(self) -> bool:
        """Whether this thread's lock is known, without asking, to be lost or past its lease."""
        return self._hold.lost

    @property
    def fencing_token(self) -> int | None:
        """A number higher than any holder's before; none without ``fence_key`` or when not held."""
        return self._hold.token

    @contextmanager
    def holding(self, *, wait_ms: int = 0) -> Iterator[Self]:
        """Hold the lock in a ``with`` block, waiting for it at most ``wait_ms``.

        :raises LockBusy: not had within that time
        :raises LockNotOwned: the body ended well, but without the lock
        """
        self.acquire(wait_ms=wait_ms)
        with self._hold:
            yield self

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hold.__exit__(kind, error, traceback)

    def _attempt(self, owner: str) -> bool:
        sent_at = time.monotonic()
        result, token = scripts.acquire(
            self._client,
            self.name,
            owner,
            lease_ms=self._lease_ms,
            fence_key=self._fence_key,
            fence_floor=self._fence_floor,
        )
        if result is not AcquireResult.GRANTED:
            return False
        self._hold.granted(owner, (self.name,), sent_at=sent_at, token=token)
        return True
