"""A lock in Redis for the tasks of event loops, and a fair one that is granted in order."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

from redis import RedisError, ResponseError
from redis.asyncio import Redis

from locks import scripts
from locks.aio.loops import acquire_in_turn, here
from locks.aio.sending import answer_of, finished, renew
from locks.hold import LockNotOwned, releasing_after
from locks.lua_script import ScriptCall
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
    new_owner,
)
from locks.redis_lock import LockBusy, NotReplicated
from locks.wait_queues import NOTE_S, Busy, Wait
from locks.watchdog import Lease


class AsyncRedisLock:
    """A lock with a lease, held through one object at a time; see ``locks/README.md``.

    It excludes a ``RedisLock`` of the same name. Like ``asyncio.Lock`` it belongs to no task and
    cannot be entered again; unlike it, each holder makes an object of its own. Every call that asks
    Redis may raise ``redis.RedisError``: the outcome is unknown, and the same call can be repeated.

    A cancelled call ends when the reply in flight has come or the client's timeout is over, and
    leaves no lock behind.
    """

    _first_note = NO_NOTE

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
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        """Name a lock; the options are those of ``RedisLock``, this does not contact Redis.

        ``on_lost`` is called by the event loop; the ``cancel`` of a task is a good one.

        :raises ValueError: as ``RedisLock``
        """
        options = Request("", lease_ms, Fence(fence_key, fence_floor), replicas, replicas_ms)
        self._options = check_options(client, name, options)
        self.name = name
        self._client = client
        self._on_lost = on_lost
        self._owner: str | None = None
        """The owner of an acquisition that was requested and not yet released or refused."""
        self._lease: Lease | None = None
        self._acquiring = self._ending = False
        self._replicas_had = self._pid = 0

    async def acquire(self, *, wait_ms: int = 0, lease_ms: int | None = None) -> None:
        """Take the lock, waiting at most ``wait_ms``.

        A lease given here is fixed: it is not renewed.

        :raises LockBusy: not granted within that time
        :raises NotReplicated: it was free, but too few replicas had it in time
        :raises RuntimeError: this object holds it, or is acquiring it, already
        :raises ValueError: a lease below 1 ms
        :raises redis.RedisError: unknown whether it was taken; acquire again or release
        """
        length_ms = check_lease(self._options.lease_ms if lease_ms is None else lease_ms)
        repeated = self._start()
        try:
            wait = Wait(self._topic, wait_ms, at_once=repeated, first_note=self._first_note)
            granted = await acquire_in_turn(
                self._client, lambda note: finished(self._attempt(length_ms, note)), wait
            )
            if not granted:
                if wait_ms > 0:
                    await self._give_up()
                self._owner = None
                raise LockBusy(self.name)
            await self._check_replicas()
        except asyncio.CancelledError:
            with suppress(RedisError, LockNotOwned):  # then it is left to its lease
                await finished(self._end())
            raise
        finally:
            self._acquiring = False
        if lease_ms is None and self._lease is not None:
            here().watchdog.watch(self._lease)

    async def release(self) -> None:
        """Release the lock, and never another owner's; this goes on if the task is cancelled.

        :raises LockNotOwned: not held through this object, or expired, or taken over meanwhile
        :raises redis.RedisError: unknown whether it was released; release again, or leave it to
            its lease, which is no longer renewed
        """
        if self._acquiring:
            raise LockNotOwned(self.name)
        await finished(self._end())

    async def extend(self) -> None:
        """Extend the lease to its full length from now, for a holder that renews by hand.

        :raises LockNotOwned: not held through this object, or lost
        """
        lease = self._lease
        if lease is None or not self._holds or lease.lost:
            raise LockNotOwned(self.name)
        sent_at = time.monotonic()
        (result,) = await finished(renew(self._client, [lease.renewal]))
        if isinstance(result, ResponseError):
            raise result
        lease.apply(result, sent_at=sent_at)
        if lease.lost:
            raise LockNotOwned(self.name)

    async def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock at this moment."""
        look = scripts.look_call(self.name)
        return await finished(answer_of(self._client, look)) is not LookResult.FREE

    async def owned(self) -> bool:
        """Ask Redis whether this object holds the lock at this moment."""
        if self._owner is None or self._pid != os.getpid():
            return False
        look = scripts.look_call(self.name, self._owner)
        return await finished(answer_of(self._client, look)) is LookResult.OURS

    @property
    def lost(self) -> bool:
        """Whether this lock is known to be lost or expired; does not ask Redis."""
        if self._lease is None:
            return False
        return self._lease.lost or (self._pid != os.getpid() and not self._lease.ended)

    @property
    def fencing_token(self) -> int | None:
        """A number above every earlier holder's; None without ``fence_key`` or when not held."""
        return self._lease.token if self._lease is not None and self._holds else None

    @asynccontextmanager
    async def holding(
        self, *, wait_ms: int = 0, lease_ms: int | None = None
    ) -> AsyncIterator[Self]:
        """Hold the lock in an ``async with`` block, waiting for it at most ``wait_ms``.

        :raises LockBusy: not granted within that time
        :raises LockNotOwned: the body succeeded, but the lock was lost
        """
        await self.acquire(wait_ms=wait_ms, lease_ms=lease_ms)
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self)
            yield self

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with releasing_after(error, self.name):
            await self.release()

    # Hooks that the fair lock overrides.

    @property
    def _topic(self) -> str:
        """The topic of the release that this object waits for."""
        return self.name

    def _acquire_call(self, request: Request) -> ScriptCall[Answer]:
        return scripts.acquire_call(self.name, request)

    async def _release_call(self, owner: str) -> ReleaseResult:
        own = True  # whether a waiter of this event loop may be the one to wake, unless Redis knows
        try:
            call = scripts.release_call(self.name, owner, waker=here().waker)
            result, own = await answer_of(self._client, call)
            return result
        finally:
            if own:
                here().queues_of(self._client).wake([self.name])

    async def _give_up(self) -> None:
        """Clean up after an unsuccessful wait."""

    @property
    def _holds(self) -> bool:
        """Whether it was granted and not yet released, even if lost since."""
        return self._lease is not None and not self._lease.ended and self._pid == os.getpid()

    def _start(self) -> bool:
        """Start an acquisition, or repeat one without a reply; return whether it is repeated."""
        if self._acquiring or self._holds:
            raise RuntimeError(f"{self.name}: this object is in use, and each holder needs its own")
        repeated = self._owner is not None and not self._ending and self._pid == os.getpid()
        if not repeated:
            self._owner, self._lease, self._pid = new_owner(), None, os.getpid()
        self._acquiring, self._ending = True, False
        return repeated

    async def _attempt(self, lease_ms: int, note: WaitNote) -> Busy | None:
        assert self._owner is not None  # _start() comes first
        sent_at = time.monotonic()
        note = note._replace(waker=here().waker)
        request = self._options._replace(owner=self._owner, lease_ms=lease_ms, note=note)
        answer = await answer_of(self._client, self._acquire_call(request))
        if answer.result is not AcquireResult.GRANTED:
            return Busy(self._topic, answer.left_ms)
        self._replicas_had = answer.replicas
        self._lease = Lease(
            self._client, (self.name,), self._owner, lease_ms, sent_at, answer.token, self._on_lost
        )
        return None

    async def _check_replicas(self) -> None:
        wanted = self._options.replicas
        if self._replicas_had < wanted:
            with suppress(RedisError, LockNotOwned):  # then the lock is left to its lease
                await finished(self._end())
            raise NotReplicated(f"{self.name}: {self._replicas_had} of {wanted} replicas")

    async def _end(self) -> None:
        """Stop renewing and release in Redis."""
        owner, lease = self._owner, self._lease
        if owner is None or self._pid != os.getpid():
            raise LockNotOwned(self.name)
        self._ending = True
        if lease is not None:
            here().watchdog.forget(lease)
            lease.end()
        released = await self._release_call(owner) is ReleaseResult.RELEASED
        self._owner = None
        if not released:
            if lease is not None:
                lease.mark_lost()
            raise LockNotOwned(self.name)


class AsyncFairLock(AsyncRedisLock):
    """An ``AsyncRedisLock`` that is granted first come, first served, in one queue with every
    ``FairLock`` of its name."""

    _first_note = WaitNote(1, 0, int(NOTE_S * 1000))  # this takes a place in the queue

    @property
    def _topic(self) -> str:
        return fair_topic(self.name, self._owner or "")

    def _acquire_call(self, request: Request) -> ScriptCall[Answer]:
        return scripts.acquire_fair_call(self.name, request)

    async def _release_call(self, owner: str) -> ReleaseResult:
        return await answer_of(self._client, scripts.release_fair_call(self.name, owner))

    async def _give_up(self) -> None:
        with suppress(RedisError):  # then the place expires
            call = scripts.leave_queue_call(self.name, self._owner or "")
            await finished(answer_of(self._client, call))
