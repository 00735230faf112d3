"""One lock over several Redis servers that know nothing of each other (the RedLock algorithm)."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from weakref import WeakMethod

from redis import Redis, RedisError

from locks import scripts, watchdog
from locks.hold import LockNotOwned, leave_with, leaving
from locks.lease import Lease
from locks.owner import new_owner
from locks.protocol import AcquireResult, ReleaseResult, Request, Waiting, check_lease, check_name
from locks.redis_lock import LockBusy
from locks.servers import check_client, check_hasty
from locks.waiting import Busy, take_by_asking

logger = logging.getLogger(__name__)


class QuorumLock:
    """A lock held by having it on more than half of the servers, one thread at a time.

    It survives the loss of the others. It is **no safer than a** ``RedisLock`` **against a holder
    that was stopped**, and has no fencing token to catch one; servers that restart empty, or whose
    clocks jump by more than the drift bound, can let two in. Where that matters use a fencing token
    that a database checks. See ``locks/README.md``.

    The algorithm is that of https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
    """

    def __init__(
        self,
        clients: Sequence[Redis],
        name: str,
        *,
        lease_ms: int = 10_000,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Name the lock; nothing is asked of any server yet.

        The clients reach servers of their own, no replicas of each other, and have time-outs far
        below the lease, because they are asked one after another.

        :raises ValueError: no server, a client that does not decode or has retries, a name that
            cannot be one, or a lease below 1 ms
        """
        if not clients:
            raise ValueError("a quorum needs at least one server")
        check_name(name)
        for client in clients:
            check_client(client)
            check_hasty(client)
        self.name = name
        self.quorum = len(clients) // 2 + 1
        self._clients = tuple(clients)
        self._lease_ms = check_lease(lease_ms)
        self._on_lost = on_lost
        self._mine = _Mine()

    def acquire(self, *, wait_ms: int = 0) -> None:
        """Take the lock, waiting at most ``wait_ms``; once more where this thread has it already.

        A server that does not answer counts as one that refuses.

        :raises LockBusy: not had on a quorum within that time
        """
        mine = self._mine.grants
        if mine and mine[-1].is_held and not mine[-1].lost:
            mine.append(mine[-1])
        elif not take_by_asking(self._attempt, wait_ms=wait_ms):
            raise LockBusy(self.name)

    def release(self) -> None:
        """Undo one acquire, and with the last let go on every server.

        A server that does not answer keeps the lock until its lease is over.

        :raises LockNotOwned: not held by this thread, or no longer by a quorum
        """
        mine = self._mine.grants
        if not mine or not mine[-1].is_held:
            raise LockNotOwned(self.name)
        grant = mine.pop()
        owned = not grant.lost
        if grant not in mine:
            grant.end()
            owned = self._let_go(grant.owner) and owned
        if not owned:
            raise LockNotOwned(self.name)

    @property
    def lost(self) -> bool:
        """Whether this thread's lock is known, without asking, to be had by no quorum any more."""
        mine = self._mine.grants
        return bool(mine) and mine[-1].lost

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave_with(self.release, self.name, error)

    @contextmanager
    def holding(self, *, wait_ms: int = 0) -> Iterator[Self]:
        """Hold the lock in a ``with`` block, waiting for it at most ``wait_ms``.

        :raises LockBusy: not had within that time
        :raises LockNotOwned: the body ended well, but without the lock
        """
        self.acquire(wait_ms=wait_ms)
        with leaving(self.release, self.name):
            yield self

    def _attempt(self, waiting: Waiting) -> Busy | None:
        """Ask all servers; who has a quorum of leases that are not over yet has the lock."""
        grant = _Grant(self.quorum, self._on_lost)
        for client in self._clients:
            self._ask(client, grant)
        if grant.lost:
            self._let_go(grant.owner)
            return Busy(self.name)
        self._mine.grants.append(grant)
        grant.watch()
        return None

    def _ask(self, client: Redis, grant: _Grant) -> None:
        sent_at = time.monotonic()
        try:
            answer = scripts.acquire(client, self.name, Request(grant.owner, self._lease_ms))
        except RedisError as error:
            logger.info("%s: a server did not answer: %r", self.name, error)
            return
        if answer.result is AcquireResult.GRANTED:
            grant.add(client, self.name, lease_ms=self._lease_ms, sent_at=sent_at)

    def _let_go(self, owner: str) -> bool:
        """Release on all servers; false where too many say that it was not had there."""
        refused = 0
        for client in self._clients:
            try:
                result, _ = scripts.release(client, self.name, owner)
                refused += result is ReleaseResult.NOT_OWNED
            except RedisError as error:
                logger.info("%s: left to its lease on a server: %r", self.name, error)
        return len(self._clients) - refused >= self.quorum


class _Grant:
    """What one thread has on the servers, from its asking to its release."""

    def __init__(self, quorum: int, on_lost: Callable[[], None] | None) -> None:
        self.owner = new_owner()
        self._quorum = quorum
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._leases: list[Lease] = []
        self._ended = False

    @property
    def is_held(self) -> bool:
        """Whether it is held as far as this process was told, lost or not."""
        return not self._ended and self._pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether fewer than a quorum are left; a forked child has none of its parent's."""
        if self._pid != os.getpid():
            return not self._ended
        return sum(not lease.lost for lease in self._leases) < self._quorum

    def add(self, client: Redis, name: str, *, lease_ms: int, sent_at: float) -> None:
        """Note one server that granted the lock."""
        told = WeakMethod(self._told)  # a lease must not keep alive what keeps it alive
        self._leases.append(
            Lease(
                client,
                (name,),
                self.owner,
                lease_ms=lease_ms,
                sent_at=sent_at,
                on_lost=lambda: (tell := told()) and tell(),
            )
        )

    def watch(self) -> None:
        """Renew it, on each server by itself."""
        for lease in self._leases:
            watchdog.watch(lease)

    def end(self) -> None:
        """Stop renewing, because letting go begins."""
        self._ended = True
        for lease in self._leases:
            watchdog.forget(lease)
            lease.end()

    def _told(self) -> None:
        """Tell the holder, once, when with this lease the quorum is lost."""
        on_lost = self._on_lost
        if on_lost is not None and self.lost:
            self._on_lost = None
            on_lost()


class _Mine(threading.local):
    """What the current thread holds through one lock object: a grant for each time it acquired."""

    def __init__(self) -> None:
        self.grants: list[_Grant] = []
