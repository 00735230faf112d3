"""Many locks of one holder, taken, renewed and released in one call each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from redis import Redis

from locks import scripts, watchdog
from locks.hold import Acquisition, Hold, leaving
from locks.lease import Lease, shown
from locks.protocol import (
    NOT_WAITING,
    AcquireResult,
    Answer,
    ReleaseResult,
    Request,
    Take,
    Waiting,
    check_lease,
    check_name,
)
from locks.redis_lock import LockBusy
from locks.servers import check_client
from locks.waiting import Busy, Turn, take_in_turn, wake_here


class MultiLock:
    """Locks of many names (whole keys of one hash tag), for one thread at a time.

    A name excludes a ``RedisLock`` of the same name, and what this thread holds already is entered
    again. As there, every call that asks Redis may raise ``redis.RedisError``: unknown what
    happened, and the same call may be made again.
    """

    def __init__(
        self,
        client: Redis,
        names: Sequence[str],
        *,
        lease_ms: int = 10_000,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Name the locks; nothing is asked of Redis yet.

        :raises ValueError: a client that does not decode, a name that cannot be one, or a lease
            below 1 ms
        """
        self.names = tuple(dict.fromkeys(names))
        check_client(client)
        for name in self.names:
            check_name(name)
        self._client = client
        self._lease_ms = check_lease(lease_ms)
        self._on_lost = on_lost
        self._hold = Hold(client, self.names)

    def acquire_free(self) -> set[str]:
        """Take those that are free, and return the names held now, which may be none.

        :raises redis.RedisError: unknown which were taken; acquire again or release
        """
        ours, missing = self._hold.split()
        granted: Lease | None = None
        if missing:
            asked = self._hold.begin(
                missing, let_go=partial(let_go_of_many, self._client, missing[0])
            )
            sent_at = time.monotonic()
            answer = self._ask(asked, Take.FREE, NOT_WAITING)
            granted = self._lease(asked, answer.names, sent_at=sent_at)
        self._enter(ours, granted)
        return set(self.names).difference(missing).union(granted.names if granted else ())

    def acquire_all(self, *, wait_ms: int = 0) -> None:
        """Take all of them or none, waiting at most ``wait_ms``.

        :raises LockBusy: they were not all free at once within that time
        :raises redis.RedisError: unknown whether they were taken; acquire again or release
        """
        ours, missing = self._hold.split()
        if not missing:
            self._enter(ours, None)
            return
        asked = self._hold.begin(missing, let_go=partial(let_go_of_many, self._client, missing[0]))

        def ask(waiting: Waiting) -> Busy | None:
            sent_at = time.monotonic()
            answer = self._ask(asked, Take.ALL, waiting)
            if answer.result is not AcquireResult.GRANTED:
                return Busy(answer.names[0] if answer.names else missing[0], answer.left_ms)
            self._enter(ours, self._lease(asked, answer.names, sent_at=sent_at))
            return None

        turn = Turn(missing[0], wait_ms, at_once=asked.asked)
        asked.asked = True
        if not take_in_turn(self._client, ask, turn):
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
        with leaving(self.release, shown(self.names)):
            yield held

    @contextmanager
    def holding_all(self, *, wait_ms: int = 0) -> Iterator[None]:
        """Hold all of them in a ``with`` block, waiting at most ``wait_ms``.

        :raises LockBusy: they were not all free at once within that time
        :raises LockNotOwned: the body ended well, but at least one lock was lost
        """
        self.acquire_all(wait_ms=wait_ms)
        with leaving(self.release, shown(self.names)):
            yield

    def _ask(self, asked: Acquisition, take: Take, waiting: Waiting) -> Answer:
        request = Request(asked.owner, self._lease_ms, waiting=waiting)
        return scripts.acquire_many(self._client, asked.keys, request, take=take)

    def _lease(self, asked: Acquisition, names: tuple[str, ...], *, sent_at: float) -> Lease:
        return Lease(
            self._client,
            names,
            asked.owner,
            lease_ms=self._lease_ms,
            sent_at=sent_at,
            on_lost=self._on_lost,
        )

    def _enter(self, ours: Sequence[Acquisition], granted: Lease | None) -> None:
        self._hold.enter(ours, granted)
        if granted is not None and granted.names:
            watchdog.watch(granted)


def let_go_of_many(client: Redis, first: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    """Release what is held of locks that were asked for from ``first`` on; wake all who wait."""
    try:
        return scripts.release_many(client, keys, owner, first=first)
    finally:
        wake_here(client, keys)
