"""A lock in Redis for many processes, and a fair one that is granted in order."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Self

from redis import Redis, RedisError

from locks import scripts, watchdog
from locks.hold import Acquisition, Block, Hold, ReleaseCall, released_after
from locks.protocol import (
    NO_NOTE,
    AcquireResult,
    Answer,
    Fence,
    LookResult,
    ReleaseResult,
    Request,
    WaitNote,
    check_lease,
    check_options,
    fair_topic,
)
from locks.wait_queues import NOTE_S, Busy, Wait, acquire_by_polling, acquire_in_turn, wake_here


class LockBusy(Exception):
    """Somebody else held the lock for the whole wait."""


class NotReplicated(Exception):
    """The lock was free, but too few replicas had it in time, so it was released."""


class RedisLock(Block):
    """A lock with a lease, held by one thread of one process at a time; see ``locks/README.md``.

    ``name`` and ``fence_key`` are whole keys of one hash tag. Every call that asks Redis may raise
    ``redis.RedisError``: the outcome is unknown, and the same call can be repeated.
    """

    _shared = False
    _first_note = NO_NOTE
    """The note of the first request before a wait."""

    def __init__(
        self,
        client: Redis,
        name: str,
        *,
        lease_ms: int = 10_000,
        fence_key: str | None = None,
        fence_floor: int = 0,
        replicas: int = 0,
        replicas_ms: int = 200,
        spin: bool = False,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Name a lock; this does not contact Redis.

        ``lease_ms`` is renewed at a third of its length while the lock is held. The lock counts
        only once ``replicas`` replicas have it; they get ``replicas_ms``, which must be well below
        the client's timeout. ``spin`` waits by polling, for servers that forbid pub/sub.
        ``on_lost`` is called, in a thread of its own, when a renewed lease is lost while held.
        Re-entry keeps what the first acquire requested.

        :raises ValueError: a client that does not decode, an invalid name, a lease or a wait for
            replicas below 1 ms, or a floor that no token can be above
        """
        options = Request("", lease_ms, Fence(fence_key, fence_floor), replicas, replicas_ms)
        self._options = check_options(client, name, options)
        self.name = name
        self._client = client
        self._spin = spin
        self._hold = Hold(client, (self._key,), on_lost)

    def acquire(self, *, wait_ms: int = 0, lease_ms: int | None = None) -> None:
        """Take the lock, waiting at most ``wait_ms``; re-enter if this thread already has it.

        A lease given here is fixed: it is not renewed. A lost lock is taken again, and the release
        of the first acquire reports the loss.

        :raises LockBusy: not granted within that time
        :raises NotReplicated: it was free, but too few replicas had it in time
        :raises ValueError: a lease below 1 ms; or a fencing token wanted on re-entry that the
            first acquire did not request
        :raises redis.RedisError: unknown whether it was taken; acquire again or release
        """
        held, missing = self._hold.split(fence=self._options.fence)
        if not missing:
            self._hold.enter(held)
        elif not self._take(lease_ms, wait_ms=wait_ms):
            raise LockBusy(self.name)

    def release(self) -> None:
        """Undo one acquire; the last one releases the lock, and never another owner's.

        :raises LockNotOwned: not held by this thread, or expired, or taken over meanwhile
        :raises redis.RedisError: unknown whether it was released; release again, or leave it to
            its lease, which is no longer renewed
        """
        self._hold.release()

    def extend(self) -> None:
        """Extend the lease to its full length from now, for a holder that renews by hand.

        :raises LockNotOwned: not held by this thread, or lost
        """
        self._hold.extend()

    def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock at this moment."""
        return scripts.look_call(self.name).run(self._client) is not LookResult.FREE

    def owned(self) -> bool:
        """Ask Redis whether this thread holds the lock at this moment."""
        owner = self._hold.owner
        if owner is None:
            return False
        return scripts.look_call(self.name, owner).run(self._client) is LookResult.OURS

    @property
    def lost(self) -> bool:
        """Whether this thread's lock is known to be lost or expired; does not ask Redis."""
        return self._hold.lost

    @property
    def fencing_token(self) -> int | None:
        """A number above every earlier holder's; None without ``fence_key`` or when not held."""
        return self._hold.token

    @contextmanager
    def holding(self, *, wait_ms: int = 0, lease_ms: int | None = None) -> Iterator[Self]:
        """Hold the lock in a ``with`` block, waiting for it at most ``wait_ms``.

        :raises LockBusy: not granted within that time
        :raises LockNotOwned: the body succeeded, but the lock was lost
        """
        self.acquire(wait_ms=wait_ms, lease_ms=lease_ms)
        with released_after(self.release, self.name):
            yield self

    # Hooks that other kinds of locks override.

    @property
    def _key(self) -> str:
        """The key that is renewed."""
        return self.name

    def _topic(self, owner: str) -> str:
        """Return the topic of the release that this owner waits for."""
        return self.name

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire_call(self.name, request).run(self._client)

    def _release_call(self) -> ReleaseCall:
        return partial(_release, self._client, self.name)

    def _asks_at_once(self) -> bool:
        """Return whether this thread may ask before the threads that already wait."""
        return False

    def _give_up(self, owner: str) -> None:
        """Clean up after an unsuccessful wait."""

    def _take(self, lease_ms: int | None, *, wait_ms: int) -> bool:
        fence = self._options.fence
        asked = self._hold.start((self._key,), release=self._release_call(), fence=fence)
        topic = self._topic(asked.owner)

        def ask(note: WaitNote) -> Busy | None:
            return self._attempt(asked, topic, lease_ms, note)

        # An owner whose last request got no reply may already have the lock.
        at_once = asked.asked or self._asks_at_once()
        asked.asked = True
        if self._spin:
            return acquire_by_polling(ask, wait_ms=wait_ms)
        wait = Wait(topic, wait_ms, self._shared, at_once, self._first_note)
        if acquire_in_turn(self._client, ask, wait):
            return True
        if wait_ms > 0:
            self._give_up(asked.owner)
        return False

    def _attempt(
        self, asked: Acquisition, topic: str, lease_ms: int | None, note: WaitNote
    ) -> Busy | None:
        sent_at = time.monotonic()
        length_ms = check_lease(self._options.lease_ms if lease_ms is None else lease_ms)
        request = self._options._replace(owner=asked.owner, lease_ms=length_ms, note=note)
        answer = self._ask(request)
        if answer.result is not AcquireResult.GRANTED:
            return Busy(topic, answer.left_ms)
        lease = self._hold.grant(
            [], (self._key,), lease_ms=length_ms, sent_at=sent_at, token=answer.token
        )
        if answer.replicas < request.replicas:
            with suppress(RedisError):  # then the lock is left to its lease
                self._hold.release()
            raise NotReplicated(f"{self.name}: {answer.replicas} of {request.replicas} replicas")
        if lease_ms is None:
            watchdog.watch(lease)
        return None


def _release(client: Redis, name: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    here = True  # unless Redis says otherwise
    try:
        result, here = scripts.release_call(name, owner).run(client)
        return result
    finally:
        if here:
            wake_here(client, [name])


class FairLock(RedisLock):
    """A ``RedisLock`` that is granted first come, first served across all processes.

    The queue is in Redis. A waiter asks again each second and drops out after three seconds of
    silence, so a dead waiter delays the others no longer than that. A ``RedisLock`` of the same
    name excludes this one, but knows nothing of the queue: use one kind of lock per name.
    """

    _first_note = WaitNote(1, 0, int(NOTE_S * 1000))  # this takes a place in the queue

    def _topic(self, owner: str) -> str:
        return fair_topic(self.name, owner)

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire_fair_call(self.name, request).run(self._client)

    def _release_call(self) -> ReleaseCall:
        client, name = self._client, self.name
        return lambda owner, keys: scripts.release_fair_call(name, owner).run(client)

    def _give_up(self, owner: str) -> None:
        with suppress(RedisError):  # then the place expires
            scripts.leave_queue_call(self.name, owner).run(self._client)
