"""The locks that a thread holds: their acquisition, re-entry and release."""

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self
from weakref import WeakSet

from redis import Redis, RedisError, ResponseError

from locks import scripts, watchdog
from locks.protocol import NO_FENCE, Fence, ReleaseResult, new_owner, server_of
from locks.watchdog import Lease, short_list

logger = logging.getLogger(__name__)

ReleaseCall = Callable[[str, Sequence[str]], ReleaseResult]
"""A function that releases this owner's keys in Redis. It must not reference the lock object, which
would keep the object alive."""


class LockNotOwned(Exception):
    """The caller does not hold the lock: never acquired, released already, expired or lost."""


class Block(ABC):
    """A lock that can be held in a ``with`` block."""

    name: str

    @abstractmethod
    def acquire(self) -> None: ...

    @abstractmethod
    def release(self) -> None: ...

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with releasing_after(error, self.name):
            self.release()


@contextmanager
def released_after(release: Callable[[], None], name: str) -> Iterator[None]:
    """Release at the end of a ``with`` block, as ``releasing_after`` says."""
    try:
        yield
    except BaseException as error:
        with releasing_after(error, name):
            release()
        raise
    with releasing_after(None, name):
        release()


@contextmanager
def releasing_after(error: BaseException | None, name: str) -> Iterator[None]:
    """Log a failed release; it never hides the ``error`` of the block that held the lock.

    :raises LockNotOwned: that block succeeded, but the lock was lost
    """
    try:
        yield
    except LockNotOwned:
        if error is None:
            raise
        logger.warning("%s: was lost before %r ended its use", name, error)
    except RedisError as unknown:
        # The body has done its work, and without renewal the lease expires.
        logger.warning("%s: left to its lease, not released: %r", name, unknown)


@dataclass(eq=False)
class Acquisition:
    """The locks that one thread took in one call; they share one owner token.

    ``names`` are the granted ones, on ``server``.
    """

    keys: tuple[str, ...]
    release: ReleaseCall
    fence: Fence = NO_FENCE
    owner: str = field(default_factory=new_owner)
    pid: int = field(default_factory=os.getpid)
    lease: Lease | None = None
    server: Hashable = None
    names: frozenset[str] = frozenset()
    depth: int = 1
    asked: bool = False
    ending: bool = False

    @property
    def is_held(self) -> bool:
        """Whether they were granted to this process and not yet released, even if lost since."""
        return self.lease is not None and not self.ending and self.pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether they are known to be lost; a forked child holds none of its parent's."""
        if self.lease is None:
            return False
        return self.lease.lost or (self.pid != os.getpid() and not self.lease.ended)

    def end(self) -> bool:
        """Stop renewing and release in Redis; return whether all locks were still ours."""
        self.ending = True
        if self.lease is not None:
            watchdog.forget(self.lease)
            self.lease.end()
        released = self.release(self.owner, self.keys) is ReleaseResult.RELEASED
        if not released and self.lease is not None:
            self.lease.mark_lost()
        return released


class _ThreadHolds(threading.local):
    """The current thread's acquisitions, while a lock object refers to them.

    There are few, of up to thousands of keys each, so they are not listed by key.
    """

    def __init__(self) -> None:
        self.granted: WeakSet[Acquisition] = WeakSet()


_thread_holds = _ThreadHolds()


def held_by_thread(server: Hashable, key: str) -> Acquisition | None:
    """Return this thread's acquisition of a key, through any lock object; None if it was lost."""
    return next(iter(_held_of(server, [key])), None)


def _held_of(server: Hashable, keys: Sequence[str]) -> list[Acquisition]:
    """Return this thread's acquisitions that hold any of these keys."""
    granted = [it for it in _thread_holds.granted if it.server == server]
    return [it for it in granted if it.is_held and not it.names.isdisjoint(keys) and not it.lost]


class Hold(threading.local):
    """The current thread's acquisitions through one lock object: one level for each acquire.

    It is thread-local, so a shared lock object excludes threads too. When the thread or the lock
    object is gone, its leases are gone too, and nothing renews them.
    """

    def __init__(
        self, client: Redis, keys: Sequence[str], on_lost: Callable[[], None] | None
    ) -> None:
        self._client, self._server, self._on_lost = client, server_of(client), on_lost
        self._keys = tuple(keys)
        self._levels: list[list[Acquisition]] = []
        self._asked: Acquisition | None = None
        self._last: list[Acquisition] = []
        self._owned = True

    def split(self, *, fence: Fence = NO_FENCE) -> tuple[list[Acquisition], list[str]]:
        """Return this thread's acquisitions of the keys, and the keys that it does not hold.

        :raises ValueError: a token is wanted, but the first acquire did not request one
        """
        held = _held_of(self._server, self._keys)
        for it in held:
            if fence.key is not None and it.fence.key != fence.key:
                raise ValueError(f"{short_list(it.keys)}: held by this thread without this fence")
        names = frozenset[str]().union(*(it.names for it in held))
        return held, [key for key in self._keys if key not in names]

    def start(
        self, keys: Sequence[str], *, release: ReleaseCall, fence: Fence = NO_FENCE
    ) -> Acquisition:
        """Return the acquisition to request with: the same one until it is granted or released."""
        if self._levels and all(it.ending for it in self._levels[-1]):
            self._levels.pop()  # its release got no reply, and the caller does not retry it
        asked = self._asked
        if asked is None or asked.ending or asked.pid != os.getpid() or asked.keys != tuple(keys):
            self._asked = asked = Acquisition(tuple(keys), release, fence)
        return asked

    def enter(self, held: Iterable[Acquisition]) -> None:
        """Add a level with the acquisitions that this thread already held."""
        self._levels.append(list(held))
        for it in self._levels[-1]:
            it.depth += 1

    def grant(
        self,
        held: Iterable[Acquisition],
        names: tuple[str, ...],
        *,
        lease_ms: int,
        sent_at: float,
        token: int | None = None,
    ) -> Lease:
        """Add a level with what this thread already held and what was just granted."""
        asked, self._asked = self._asked, None
        assert asked is not None  # start() comes before grant()
        asked.keys, asked.names, asked.server = names, frozenset(names), self._server
        asked.lease = Lease(
            self._client, names, asked.owner, lease_ms, sent_at, token, self._on_lost
        )
        _thread_holds.granted.add(asked)
        self.enter(held)
        self._levels[-1].append(asked)
        return asked.lease

    @property
    def lost(self) -> bool:
        """Whether any lock of the last level is known to be lost."""
        return any(it.lost for it in (self._levels[-1] if self._levels else self._last))

    @property
    def token(self) -> int | None:
        """The fencing token of the last level, while it is held."""
        held = [it.lease for level in self._levels[-1:] for it in level if it.is_held]
        return held[0].token if held and held[0] else None

    @property
    def owner(self) -> str | None:
        """The owner token of an acquisition that has started and not ended."""
        held = [it for level in self._levels[-1:] for it in level]
        it = held[0] if held else self._asked
        return None if it is None or it.pid != os.getpid() else it.owner

    def extend(self) -> None:
        """Extend the lease to its full length from now.

        :raises LockNotOwned: not held, or lost
        """
        leases = [it.lease for level in self._levels[-1:] for it in level if it.is_held]
        if not leases:
            raise LockNotOwned(short_list(self._keys))
        for lease in leases:
            assert lease is not None  # a held acquisition has a lease
            if not lease.lost:
                sent_at = time.monotonic()
                (result,) = scripts.renew(self._client, [lease.renewal])
                if isinstance(result, ResponseError):
                    raise result
                lease.apply(result, sent_at=sent_at)
            if lease.lost:
                raise LockNotOwned(short_list(lease.names))

    def release(self) -> None:
        """Undo the last acquire; undoing the first one stops renewal and releases in Redis.

        It can be repeated after a lost reply.

        :raises LockNotOwned: not held, or at least one lock had expired or become another's
        """
        level = self._levels[-1] if self._levels else [self._asked] if self._asked else []
        if any(it.pid != os.getpid() for it in level) or not (level or self._levels):
            raise LockNotOwned(short_list(self._keys))
        if not (level and all(it.ending for it in level)):  # otherwise it is a retry
            self._last, self._owned = list(level), True
        for it in [it for it in level if it.depth > 1]:
            it.depth -= 1
            level.remove(it)
            self._owned = self._owned and not it.lost
        for it in level[:]:
            self._owned = it.end() and self._owned
            _thread_holds.granted.discard(it)
            level.remove(it)
        if self._levels:
            self._levels.pop()
        else:
            self._asked = None
        if not self._owned:
            raise LockNotOwned(short_list(self._keys))
