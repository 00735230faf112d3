"""Many locks of one holder, which are taken, renewed or released in a single call."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from redis import Redis

from locks import scripts, watchdog
from locks.hold import Acquisition, Hold, released_after
from locks.protocol import (
    NO_NOTE,
    AcquireResult,
    Answer,
    ReleaseResult,
    Request,
    WaitNote,
    check_client,
    check_lease,
    check_name,
)
from locks.redis_lock import LockBusy
from locks.wait_queues import Busy, Wait, acquire_in_turn, wake_here
from locks.watchdog import short_list


class MultiLock:
    """Locks of many names (whole keys of one hash tag), each held by one thread at a time.

    A name excludes a ``RedisLock`` of the same name. Locks that this thread already holds are
    re-entered. Every call that asks Redis may raise ``redis.RedisError``: the outcome is unknown,
    and the same call can be repeated.
    """

    def __init__(
        self,
        client: Redis,
        names: Sequence[str],
        *,
        lease_ms: int = 10_000,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Name the locks; this does not contact Redis.

        :raises ValueError: a client that does not decode, an invalid name, or a lease below 1 ms
        """
        self.names = tuple(dict.fromkeys(names))
        check_client(client)
        for name in self.names:
            check_name(name)
        self._client = client
        self._lease_ms = check_lease(lease_ms)
        self._hold = Hold(client, self.names, on_lost)

    def acquire_free(self) -> set[str]:
        """Take the locks that are free, and return the names held now, which may be none.

        :raises redis.RedisError: unknown which were taken; acquire again or release
        """
        held, missing = self._hold.split()
        names: tuple[str, ...] = ()
        if missing:
            asked, sent_at = self._start(missing), time.monotonic()
            names = self._ask(asked, NO_NOTE, all_or_none=False).names
            self._grant(held, names, sent_at=sent_at)
        else:
            self._hold.enter(held)
        return set(self.names).difference(missing).union(names)

    def acquire_all(self, *, wait_ms: int = 0) -> None:
        """Take all locks or none, waiting at most ``wait_ms``.

        :raises LockBusy: they were not all free at once within that time
        :raises redis.RedisError: unknown whether they were taken; acquire again or release
        """
        held, missing = self._hold.split()
        if not missing:
            self._hold.enter(held)
            return
        asked = self._start(missing)

        def ask(note: WaitNote) -> Busy | None:
            sent_at = time.monotonic()
            answer = self._ask(asked, note, all_or_none=True)
            if answer.result is not AcquireResult.GRANTED:
                return Busy(answer.names[0] if answer.names else missing[0], answer.left_ms)
            self._grant(held, answer.names, sent_at=sent_at)
            return None

        wait = Wait(missing[0], wait_ms, at_once=asked.asked)
        asked.asked = True
        if not acquire_in_turn(self._client, ask, wait):
            raise LockBusy(short_list(self.names))

    def release(self) -> None:
        """Release all held locks; do nothing if the acquire found none free.

        :raises LockNotOwned: not acquired, or at least one was lost (the others are released)
        :raises redis.RedisError: unknown whether they were released; release again, or leave them
            to their lease, which is no longer renewed
        """
        self._hold.release()

    @property
    def lost(self) -> bool:
        """Whether at least one lock of this thread is known to be lost; does not ask Redis."""
        return self._hold.lost

    @contextmanager
    def holding_free(self) -> Iterator[set[str]]:
        """Hold the locks that are free in a ``with`` block, and yield their names.

        :raises LockNotOwned: the body succeeded, but at least one lock was lost
        """
        held = self.acquire_free()
        with released_after(self.release, short_list(self.names)):
            yield held

    @contextmanager
    def holding_all(self, *, wait_ms: int = 0) -> Iterator[None]:
        """Hold all locks in a ``with`` block, waiting at most ``wait_ms``.

        :raises LockBusy: they were not all free at once within that time
        :raises LockNotOwned: the body succeeded, but at least one lock was lost
        """
        self.acquire_all(wait_ms=wait_ms)
        with released_after(self.release, short_list(self.names)):
            yield

    def _start(self, names: Sequence[str]) -> Acquisition:
        return self._hold.start(names, release=partial(release_many, self._client, names[0]))

    def _ask(self, asked: Acquisition, note: WaitNote, *, all_or_none: bool) -> Answer:
        request = Request(asked.owner, self._lease_ms, note=note)
        return scripts.acquire_many(self._client, asked.keys, request, all_or_none=all_or_none)

    def _grant(
        self, held: Sequence[Acquisition], names: tuple[str, ...], *, sent_at: float
    ) -> None:
        lease = self._hold.grant(held, names, lease_ms=self._lease_ms, sent_at=sent_at)
        if names:
            watchdog.watch(lease)


def release_many(client: Redis, first: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    """Release these locks and wake all waiters; ``first`` is the first name that was requested."""
    try:
        return scripts.release_many(client, keys, owner, first=first)
    finally:
        wake_here(client, keys)
