"""What a thread holds: its acquisitions, how often each was entered, and how they end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from redis import Redis, RedisError, ResponseError

from locks import scripts, watchdog
from locks.lease import Lease, shown
from locks.owner import new_owner
from locks.protocol import NO_FENCE, Fence, ReleaseResult, RenewResult
from locks.servers import server_of

logger = logging.getLogger(__name__)

LetGo = Callable[[str, Sequence[str]], ReleaseResult]
"""Releases these keys of this owner in Redis. It refers to no lock object, which would live on."""


class LockNotOwned(Exception):
    """The lock is not held here: never acquired, released already, expired, or another's."""


@dataclass(eq=False)
class Acquisition:
    """One taking of locks by one thread, with an owner token of its own, and its end."""

    keys: tuple[str, ...]
    let_go: LetGo
    fence: Fence = NO_FENCE
    owner: str = field(default_factory=new_owner)
    pid: int = field(default_factory=os.getpid)
    lease: Lease | None = None
    depth: int = 1
    asked: bool = False
    ending: bool = False

    @property
    def is_held(self) -> bool:
        """Whether this is held as far as this process was told, lost or not."""
        return self.lease is not None and not self.ending and self.pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether it is known to be lost; a forked child has none of its parent's."""
        if self.lease is None:
            return False
        return self.lease.lost or (self.pid != os.getpid() and not self.lease.ended)

    def end(self) -> None:
        """Stop renewing, because letting go begins."""
        self.ending = True
        if self.lease is not None:
            watchdog.forget(self.lease)
            self.lease.end()


@contextmanager
def leaving(release: Callable[[], None], name: str) -> Iterator[None]:
    """Release at the end of a ``with`` block, as ``leave_with`` does."""
    try:
        yield
    except BaseException as error:
        leave_with(release, name, error)
        raise
    leave_with(release, name, None)


def leave_with(release: Callable[[], None], name: str, error: BaseException | None) -> None:
    """Release after a body that ended so; nothing here hides what it raised.

    :raises LockNotOwned: the body ended well, but without the lock
    """
    try:
        release()
    except LockNotOwned:
        if error is None:
            raise
        logger.warning("%s: was lost before %r ended its use", name, error)
    except RedisError as unknown:
        # The body has done its work, and without renewal the lease runs out by itself.
        logger.warning("%s: left to its lease, not released: %r", name, unknown)


class _Book(threading.local):
    """What the current thread holds, by server and key, while some lock object refers to it."""

    def __init__(self) -> None:
        self.pages: WeakValueDictionary[tuple[Hashable, str], Acquisition] = WeakValueDictionary()


_book = _Book()


def held_here(client: Redis, key: str) -> Acquisition | None:
    """Return what this thread holds of this key, by whichever lock object; lost is not held."""
    return _held(server_of(client), key)


def _held(server: Hashable, key: str) -> Acquisition | None:
    it = _book.pages.get((server, key))
    return it if it is not None and it.is_held and not it.lost else None


class Hold(threading.local):
    """What the current thread holds through one lock object: a level for each time it acquired.

    Being local to the thread it makes a shared lock object exclude threads too. With the thread or
    the lock object goes its lease, and with that the renewal.
    """

    def __init__(self, client: Redis, keys: Sequence[str]) -> None:
        self._server = server_of(client)
        self._keys = tuple(keys)
        self._levels: list[list[Acquisition]] = []
        self._asked: Acquisition | None = None
        self._last: list[Acquisition] = []
        self._owned = True

    def split(self, *, fence: Fence = NO_FENCE) -> tuple[list[Acquisition], list[str]]:
        """Return what this thread holds of the keys already, and the keys it does not hold.

        :raises ValueError: a token is wanted where the first acquire asked for none
        """
        found = {key: _held(self._server, key) for key in self._keys}
        ours = list(dict.fromkeys(it for it in found.values() if it is not None))
        for it in ours:
            if fence.key is not None and it.fence.key != fence.key:
                raise ValueError(f"{shown(it.keys)}: held by this thread without this fence")
        return ours, [key for key in self._keys if found[key] is None]

    def begin(self, keys: Sequence[str], *, let_go: LetGo, fence: Fence = NO_FENCE) -> Acquisition:
        """Return the acquisition to ask with: the same again until granted or released."""
        if self._levels and all(it.ending for it in self._levels[-1]):
            self._levels.pop()  # its release got no answer, and nobody wants one any more
        asked = self._asked
        if asked is None or asked.ending or asked.pid != os.getpid() or asked.keys != tuple(keys):
            self._asked = asked = Acquisition(tuple(keys), let_go, fence)
        return asked

    def enter(self, ours: Iterable[Acquisition], granted: Lease | None = None) -> None:
        """Hold from now on what this thread had already, and what was granted to it."""
        level = list(ours)
        for it in level:
            it.depth += 1
        if granted is not None:
            level.append(self._granted(granted))
        self._levels.append(level)

    @property
    def lost(self) -> bool:
        """Whether something of what was acquired last is known to be lost."""
        return any(it.lost for it in (self._levels[-1] if self._levels else self._last))

    @property
    def acquisition(self) -> Acquisition | None:
        """The first of what was acquired last, while it is held."""
        held = [it for level in self._levels[-1:] for it in level if it.is_held]
        return held[0] if held else None

    @property
    def owner(self) -> str | None:
        """The owner token of an acquisition that has begun and not ended."""
        held = [it for level in self._levels[-1:] for it in level]
        it = held[0] if held else self._asked
        return None if it is None or it.pid != os.getpid() else it.owner

    def extend(self) -> None:
        """Take a whole lease from now.

        :raises LockNotOwned: not held, or lost
        """
        leases = [it.lease for level in self._levels[-1:] for it in level if it.is_held]
        if not leases:
            raise LockNotOwned(shown(self._keys))
        for lease in leases:
            assert lease is not None  # what is held has one
            _extend(lease)

    def release(self) -> None:
        """Undo the last acquire; the last of all stops renewing, then lets go in Redis.

        After a lost reply it may be asked for again.

        :raises LockNotOwned: not held, or at least one lock had expired or become another's
        """
        level = self._levels[-1] if self._levels else [self._asked] if self._asked else []
        if any(it.pid != os.getpid() for it in level) or not (level or self._levels):
            raise LockNotOwned(shown(self._keys))
        if not (level and all(it.ending for it in level)):  # else it is asked for again
            self._last, self._owned = list(level), True
        for it in [it for it in level if it.depth > 1]:
            it.depth -= 1
            level.remove(it)
            self._owned = self._owned and not it.lost
        for it in level[:]:
            self._owned = _end(it) and self._owned
            level.remove(it)
        if self._levels:
            self._levels.pop()
        else:
            self._asked = None
        if not self._owned:
            raise LockNotOwned(shown(self._keys))

    def _granted(self, lease: Lease) -> Acquisition:
        acquisition, self._asked = self._asked, None
        assert acquisition is not None  # begun before it was asked for
        acquisition.keys, acquisition.lease = lease.names, lease
        for key in lease.names:
            _book.pages[(self._server, key)] = acquisition
        return acquisition


def _end(it: Acquisition) -> bool:
    """Let go of an acquisition for good; false where it was not, or is no longer, ours."""
    it.end()
    released = it.let_go(it.owner, it.keys) is ReleaseResult.RELEASED
    if not released and it.lease is not None:
        it.lease.lose()
    return released


def _extend(lease: Lease) -> None:
    if lease.lost:
        raise LockNotOwned(shown(lease.names))
    sent_at = time.monotonic()
    (result,) = scripts.renew(lease.client, [(lease.names, lease.owner, lease.lease_ms)])
    if isinstance(result, ResponseError):
        raise result
    if result is RenewResult.LOST:
        lease.lose()
    lease.renewed(sent_at=sent_at)
    if lease.lost:
        raise LockNotOwned(shown(lease.names))
