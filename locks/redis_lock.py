"""One lock for many processes, kept in Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

from redis import Redis, RedisError

from locks import scripts, watchdog
from locks.hold import Acquisition, Hold, LetGo, leave_with, leaving
from locks.lease import Lease
from locks.protocol import (
    NOT_WAITING,
    AcquireResult,
    Answer,
    Fence,
    LookResult,
    ReleaseResult,
    Request,
    Waiting,
    check_fence,
    check_lease,
    check_name,
)
from locks.servers import check_client
from locks.waiting import Busy, Turn, take_by_asking, take_in_turn, wake_here


class LockBusy(Exception):
    """The lock is held by somebody else, and was for as long as we were ready to wait."""


class NotReplicated(Exception):
    """The lock was free, but too few replicas noted in time that it is ours, so it is not."""


class RedisLock:
    """A lock with a lease, held by one thread of one process at a time; see ``locks/README.md``.

    ``name`` and ``fence_key`` are whole keys of one hash tag. Every call that asks Redis may raise
    ``redis.RedisError``: unknown what happened, and the same call may be made again.
    """

    _shared = False

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
        """Name a lock; nothing is asked of Redis yet.

        ``lease_ms`` is renewed at a third of its length while the lock is held. ``replicas`` is how
        many of them shall have noted the lock before it counts, within ``replicas_ms``, which is to
        be well below the time-out of the client. ``spin`` waits by asking again, for servers where
        pub/sub is not allowed. ``on_lost`` is called, in a thread of its own, when a renewed lease
        is lost while held. Re-entry keeps what the first acquire asked for.

        :raises ValueError: a client that does not decode, a name that cannot be one, a lease or a
            wait for replicas below 1 ms, or a floor that no token can be above
        """
        check_client(client)
        check_name(name)
        check_fence(fence_floor)
        check_lease(lease_ms)
        if replicas_ms < 1:  # Redis takes 0 for ever
            raise ValueError(f"replicas are waited for at least 1 ms, not {replicas_ms}")
        self.name = name
        self._client = client
        self._lease_ms = lease_ms
        self._fence = Fence(fence_key, fence_floor)
        self._replicas = replicas
        self._replicas_ms = replicas_ms
        self._spin = spin
        self._on_lost = on_lost
        self._hold = Hold(client, (self._key,))

    def acquire(self, *, wait_ms: int = 0, lease_ms: int | None = None) -> None:
        """Take the lock, waiting at most ``wait_ms``; once more where this thread has it already.

        A lease given here is a fixed one: it is not renewed. What was lost is taken anew, and the
        first holder is told so by ``release``.

        :raises LockBusy: not had within that time
        :raises NotReplicated: it was free, but could not be made safe on enough replicas
        :raises ValueError: a lease below 1 ms; or a fencing token wanted on re-entry, where the
            first acquire asked for none
        :raises redis.RedisError: unknown whether it was taken; acquire again or release
        """
        ours, missing = self._hold.split(fence=self._fence)
        if not missing:
            self._hold.enter(ours)
        elif not self._take(lease_ms, wait_ms=wait_ms):
            raise LockBusy(self.name)

    def release(self) -> None:
        """Undo one acquire, and with the last let go of the lock; nobody else's is ever touched.

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

    def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock at this moment."""
        return scripts.look(self._client, self.name) is not LookResult.FREE

    def owned(self) -> bool:
        """Ask Redis whether this thread holds the lock at this moment."""
        owner = self._hold.owner
        return owner is not None and scripts.look(self._client, self.name, owner) is LookResult.OURS

    @property
    def lost(self) -> bool:
        """Whether this thread's lock is known, without asking, to be lost or past its lease."""
        return self._hold.lost

    @property
    def fencing_token(self) -> int | None:
        """A number higher than any holder's before; none without ``fence_key`` or when not held."""
        acquisition = self._hold.acquisition
        return acquisition.lease.token if acquisition and acquisition.lease else None

    @contextmanager
    def holding(self, *, wait_ms: int = 0, lease_ms: int | None = None) -> Iterator[Self]:
        """Hold the lock in a ``with`` block, waiting for it at most ``wait_ms``.

        :raises LockBusy: not had within that time
        :raises LockNotOwned: the body ended well, but without the lock
        """
        self.acquire(wait_ms=wait_ms, lease_ms=lease_ms)
        with leaving(self.release, self.name):
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
        leave_with(self.release, self.name, error)

    # What differs between this lock and those that are made of it.

    @property
    def _key(self) -> str:
        """The key that is renewed."""
        return self.name

    def _topic(self, owner: str) -> str:
        """Return what the release that this one waits for is known by."""
        return self.name

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire(self._client, self.name, request)

    def _letter_go(self) -> LetGo:
        """Return what lets go of this lock, without referring to this object."""
        return partial(_let_go, self._client, self.name)

    def _opening(self) -> Waiting:
        """Return what the first question of one who would wait notes."""
        return NOT_WAITING

    def _has_claim(self) -> bool:
        """Say whether this thread has what entitles it to ask before those who wait."""
        return False

    def _gave_up(self, owner: str) -> None:
        """Do what is left to do for one who has waited in vain."""

    # How it is taken.

    def _take(self, lease_ms: int | None, *, wait_ms: int) -> bool:
        keys, let_go = (self._key,), self._letter_go()
        acquisition = self._hold.begin(keys, let_go=let_go, fence=self._fence)
        topic = self._topic(acquisition.owner)

        def ask(waiting: Waiting) -> Busy | None:
            return self._attempt(acquisition, topic, lease_ms, waiting)

        # One whose last question got no answer may have the lock.
        at_once = acquisition.asked or self._has_claim()
        acquisition.asked = True
        if self._spin:
            return take_by_asking(ask, wait_ms=wait_ms)
        turn = Turn(topic, wait_ms, self._shared, at_once, self._opening())
        if take_in_turn(self._client, ask, turn):
            return True
        if wait_ms > 0:
            self._gave_up(acquisition.owner)
        return False

    def _attempt(
        self, acquisition: Acquisition, topic: str, lease_ms: int | None, waiting: Waiting
    ) -> Busy | None:
        sent_at = time.monotonic()
        request = Request(
            acquisition.owner,
            check_lease(self._lease_ms if lease_ms is None else lease_ms),
            fence=self._fence,
            replicas=self._replicas,
            replicas_ms=self._replicas_ms,
            waiting=waiting,
        )
        answer = self._ask(request)
        if answer.result is not AcquireResult.GRANTED:
            return Busy(topic, answer.left_ms)
        lease = Lease(
            self._client,
            (self._key,),
            request.owner,
            lease_ms=request.lease_ms,
            sent_at=sent_at,
            token=answer.token,
            on_lost=self._on_lost,
        )
        self._hold.enter([], lease)
        if answer.replicas < self._replicas:
            with suppress(RedisError):  # then it is left to its lease
                self._hold.release()
            raise NotReplicated(f"{self.name}: {answer.replicas} of {self._replicas} replicas")
        if lease_ms is None:
            watchdog.watch(lease)
        return None


def _let_go(client: Redis, name: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    here = True  # unless Redis says otherwise
    try:
        result, here = scripts.release(client, name, owner)
        return result
    finally:
        if here:
            wake_here(client, [name])
