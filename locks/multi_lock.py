"""Many locks of one holder, taken, renewed and released in one call each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from redis import Redis

from locks import scripts
from locks.hold import Hold
from locks.lease import shown
from locks.redis_lock import LockBusy
from locks.scripts import AcquireResult, Take
from locks.waiting import attempts


class MultiLock:
    """Locks of many names (whole keys of one hash tag), for one thread at a time.

    A name excludes a ``RedisLock`` of the same name. As there, every call that asks Redis may raise
    ``redis.RedisError``: unknown what happened, and the same call may be made again.
    """

    def __init__(
        self, client: Redis, names: Sequence[str], *, lease_ms: int = 10_000, renew: bool = True
    ) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._client = client
        self._lease_ms = lease_ms
        self._hold = Hold(client, self.names, lease_ms=lease_ms, renew=renew)

    def acquire_free(self) -> set[str]:
        """Take those that are free, and return the names held now, which may be none.

        :raises RuntimeError: this thread holds some already, through this object
        :raises redis.RedisError: unknown which were taken; acquire again or release
        """
        return self._attempt(self._hold.begin(), Take.FREE) or set()

    def acquire_all(self, *, wait_ms: int = 0) -> None:
        """Take all of them or none, waiting at most ``wait_ms``.

        :raises LockBusy: they were not all free at once within that time
        :raises RuntimeError: this thread holds some already, through this object
        :raises redis.RedisError: unknown whether they were taken; acquire again or release
        """
        owner = self._hold.begin()
        for _ in attempts(wait_ms=wait_ms):
            if self._attempt(owner, Take.ALL) is not None:
                return
        raise LockBusy(shown(self.names))

    def release(self) -> None:
        """Let go of all that is held; nothing happens where an acquire found none free.

        :raises LockNotOwned: not acquired, or at least one was lost (the others are released)
        :raises redis.RedisError: unknown whether they were let go; release again, or leave them to
            their lease, which is no longer renewed
        """
        self._hold.release()

    @property
    def lost(self) -> bool:
        """Whether at least one lock of this thread is known, without asking, to be lost."""
        return self._hold.lost

    @contextmanager
    def holding_free(self) -> Iterator[set[str]]:
        """Hold those that are free in a ``with`` block, which gets their names.

        :raises LockNotOwned: the body ended well, but at least one lock was lost
        """
        held = self.acquire_free()
        with self._hold:
            yield held

    @contextmanager
    def holding_all(self, *, wait_ms: int = 0) -> Iterator[None]:
        """Hold all of them in a ``with`` block, waiting at most ``wait_ms``.

        :raises LockBusy: they were not all free at once within that time
        :raises LockNotOwned: the body ended well, but at least one lock was lost
        """
        self.acquire_all(wait_ms=wait_ms)
        with self._hold:
            yield

    def _attempt(self, owner: str, take: Take) -> set[str] | None:
        sent_at = time.monotonic()
        result, held = scripts.acquire_many(
            self._client, self.names, owner, lease_ms=self._lease_ms, take=take
        )
        if result is not AcquireResult.GRANTED:
            return None
        self._hold.granted(owner, tuple(held), sent_at=sent_at)
        return set(held)
