"""One lock over several independent Redis servers (the RedLock algorithm)."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self
from weakref import WeakMethod

from redis import Redis, RedisError

from locks import scripts, watchdog
from locks.hold import Block, LockNotOwned, released_after
from locks.protocol import (
    AcquireResult,
    ReleaseResult,
    Request,
    WaitNote,
    check_client,
    check_lease,
    check_name,
    new_owner,
)
from locks.redis_lock import LockBusy
from locks.wait_queues import Busy, acquire_by_polling
from locks.watchdog import Lease

logger = logging.getLogger(__name__)


class QuorumLock(Block):
    """A lock that one thread at a time holds by having it on more than half of the servers.

    It survives the loss of the other servers. It is **no safer than a** ``RedisLock`` **against a
    stopped holder**, and has no fencing token to catch one. Servers that restart empty, or whose
    clocks jump by more than the drift bound, can grant it to two holders. If that matters, use a
    fencing token that a database checks. See ``locks/README.md``.

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
        """Name the lock; this does not contact any server.

        Each client needs a server of its own, and none may be a replica of another. Their timeouts
        must be far below the lease, because they are asked one after another.

        :raises ValueError: no server, a client that does not decode or has retries, an invalid
            name, or a lease below 1 ms
        """
        if not clients:
            raise ValueError("a quorum needs at least one server")
        check_name(name)
        for client in clients:
            check_client(client, retries=False)
        self.name = name
        self.quorum = len(clients) // 2 + 1
        self._clients = tuple(clients)
        self._lease_ms = check_lease(lease_ms)
        self._on_lost = on_lost
        self._thread = _ThreadGrants()

    def acquire(self, *, wait_ms: int = 0) -> None:
        """Take the lock, waiting at most ``wait_ms``; re-enter if this thread already has it.

        A server that does not respond counts as one that refuses.

        :raises LockBusy: not granted by a quorum within that time
        """
        grants = self._thread.grants
        if grants and grants[-1].is_held and not grants[-1].lost:
            grants.append(grants[-1])
        elif not acquire_by_polling(self._attempt, wait_ms=wait_ms):
            raise LockBusy(self.name)

    def release(self) -> None:
        """Undo one acquire; the last one releases on every server.

        A server that does not respond keeps the lock until its lease ends.

        :raises LockNotOwned: not held by this thread, or no longer by a quorum
        """
        grants = self._thread.grants
        if not grants or not grants[-1].is_held:
            raise LockNotOwned(self.name)
        grant = grants.pop()
        owned = not grant.lost
        if grant not in grants:
            grant.end()
            owned = self._release(grant.owner) and owned
        if not owned:
            raise LockNotOwned(self.name)

    @property
    def lost(self) -> bool:
        """Whether this thread is known to have lost its quorum; does not ask the servers."""
        grants = self._thread.grants
        return bool(grants) and grants[-1].lost

    @contextmanager
    def holding(self, *, wait_ms: int = 0) -> Iterator[Self]:
        """Hold the lock in a ``with`` block, waiting for it at most ``wait_ms``.

        :raises LockBusy: not granted within that time
        :raises LockNotOwned: the body succeeded, but the lock was lost
        """
        self.acquire(wait_ms=wait_ms)
        with released_after(self.release, self.name):
            yield self

    def _attempt(self, note: WaitNote) -> Busy | None:
        """Ask all servers; the lock is granted if a quorum of leases has not ended."""
        grant = _Grant(self.quorum, self._on_lost)
        request = Request(grant.owner, self._lease_ms)
        for client in self._clients:
            sent_at = time.monotonic()
            try:
                answer = scripts.acquire_call(self.name, request).run(client)
            except RedisError as error:
                logger.info("%s: a server did not respond: %r", self.name, error)
                continue
            if answer.result is AcquireResult.GRANTED:
                grant.add(client, self.name, lease_ms=self._lease_ms, sent_at=sent_at)
        if grant.lost:
            self._release(grant.owner)
            return Busy(self.name)
        self._thread.grants.append(grant)
        for lease in grant.leases:
            watchdog.watch(lease)
        return None

    def _release(self, owner: str) -> bool:
        """Release on all servers; return whether a quorum still had the lock, or may have."""
        refused = 0
        for client in self._clients:
            try:
                result, _ = scripts.release_call(self.name, owner).run(client)
                refused += result is ReleaseResult.NOT_OWNED
            except RedisError as error:
                logger.info("%s: left to its lease on a server: %r", self.name, error)
        return len(self._clients) - refused >= self.quorum


class _Grant:
    """The leases of one thread on the servers, from the request to the release."""

    def __init__(self, quorum: int, on_lost: Callable[[], None] | None) -> None:
        self.owner = new_owner()
        self.leases: list[Lease] = []
        self._quorum = quorum
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._ended = False

    @property
    def is_held(self) -> bool:
        """Whether it was granted to this process and not yet released, even if lost since."""
        return not self._ended and self._pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether fewer leases than a quorum are left; a forked child has none of its parent's."""
        if self._pid != os.getpid():
            return not self._ended
        return sum(not lease.lost for lease in self.leases) < self._quorum

    def add(self, client: Redis, name: str, *, lease_ms: int, sent_at: float) -> None:
        """Add the lease on one server that granted the lock."""
        on_lease_lost = WeakMethod(self._on_lease_lost)  # a lease must not keep this object alive
        self.leases.append(
            Lease(
                client,
                (name,),
                self.owner,
                lease_ms,
                sent_at,
                on_lost=lambda: (call := on_lease_lost()) and call(),
            )
        )

    def end(self) -> None:
        """Stop renewing before the release."""
        self._ended = True
        for lease in self.leases:
            watchdog.forget(lease)
            lease.end()

    def _on_lease_lost(self) -> None:
        """Notify the holder, once, if this loss has cost it the quorum."""
        on_lost = self._on_lost
        if on_lost is not None and self.lost:
            self._on_lost = None
            on_lost()


class _ThreadGrants(threading.local):
    """The current thread's grants through one lock object, one for each acquire."""

    def __init__(self) -> None:
        self.grants: list[_Grant] = []
