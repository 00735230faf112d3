"""The life of an acquisition, from its owner token to its release; both kinds of lock have one."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from types import TracebackType
from typing import Self

from redis import Redis, RedisError

from locks import scripts, watchdog
from locks.lease import Lease, shown
from locks.scripts import ReleaseResult, RenewResult

logger = logging.getLogger(__name__)


class LockNotOwned(Exception):
    """The lock is not held here: never acquired, released already, expired, or another's."""


class Hold(threading.local):
    """What the current thread holds through one lock object.

    Being local to the thread it makes a shared lock object exclude threads too: each has an owner
    token of its own. With the thread goes its lease, and with that the renewal.
    """

    def __init__(
        self, client: Redis, names: tuple[str, ...], *, lease_ms: int, renew: bool
    ) -> None:
        if lease_ms < 1:
            raise ValueError(f"a lease is at least 1 ms, not {lease_ms}")
        self._client = client
        self._names = names
        self._lease_ms = lease_ms
        self._renew = renew
        self._owner: str | None = None
        self._lease: Lease | None = None
        self._ending = False
        self._pid = 0

    def begin(self) -> str:
        """Return the owner token to acquire with: the same again until granted or released.

        :raises RuntimeError: this thread holds the lock already, through this object
        """
        if self._live() is not None:
            raise RuntimeError(f"{self._shown()}: held by this thread; the lock is not reentrant")
        if self._owner is None or self._ending or self._forked():
            self._owner, self._lease, self._ending = _new_owner(), None, False
            self._pid = os.getpid()
        return self._owner

    def granted(
        self, owner: str, names: tuple[str, ...], *, sent_at: float, token: int | None = None
    ) -> None:
        """Hold these locks, by a request that was sent at ``sent_at`` (monotonic seconds)."""
        self._lease = lease = Lease(
            self._client, names, owner, lease_ms=self._lease_ms, sent_at=sent_at, token=token
        )
        if self._renew and names:
            watchdog.watch(lease)

    @property
    def lost(self) -> bool:
        """Whether the locks are known to be lost; a forked child has none of its parent's."""
        if self._lease is None:
            return False
        return self._lease.lost or (self._forked() and not self._lease.ended)

    @property
    def token(self) -> int | None:
        """The fencing token, while held."""
        lease = self._live()
        return None if lease is None else lease.token

    @property
    def owner(self) -> str | None:
        """The owner token of an acquisition that has begun and not ended."""
        return None if self._forked() else self._owner

    def extend(self) -> None:
        """Take a whole lease from now.

        :raises LockNotOwned: not held, or lost
        """
        lease = self._live()
        if lease is None:
            raise LockNotOwned(self._shown())
        sent_at = time.monotonic()
        (result,) = scripts.renew(self._client, [(lease.names, lease.owner, lease.lease_ms)])
        if result is RenewResult.LOST:
            lease.lose()
        lease.renewed(sent_at=sent_at)
        if lease.lost:
            raise LockNotOwned(self._shown())

    def release(self) -> None:
        """Stop renewing, then let go; after a lost reply it may be asked for again.

        :raises LockNotOwned: not held, or at least one lock had expired or become another's
        """
        owner, names, lease = self.owner, self._names, self._lease
        if owner is None:
            raise LockNotOwned(self._shown())
        self._ending = True
        if lease is not None:
            names = lease.names
            watchdog.forget(lease)
            lease.end()
        result = scripts.release(self._client, names, owner)
        self._owner = None
        if result is ReleaseResult.NOT_OWNED:
            if lease is not None:
                lease.lose()
            raise LockNotOwned(self._shown())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release; nothing here hides what the body raised.

        :raises LockNotOwned: the body ended well, but without the lock
        """
        try:
            self.release()
        except LockNotOwned:
            if error is None:
                raise
            logger.warning("%s: was lost before %r ended its use", self._shown(), error)
        except RedisError as unknown:
            # The body has done its work, and without renewal the lease runs out by itself.
            logger.warning("%s: left to its lease, not released: %r", self._shown(), unknown)

    def _live(self) -> Lease | None:
        """Return the lease of locks that this thread holds, as far as it was told."""
        lease = self._lease
        if lease is None or not lease.names or lease.ended or self._forked():
            return None
        return lease

    def _forked(self) -> bool:
        return self._pid != os.getpid()

    def _shown(self) -> str:
        return shown(self._lease.names if self._lease is not None else self._names)


def _new_owner() -> str:
    """Return a token that no other acquisition has, and that tells people who it is."""
    return f"{socket.gethostname()}/{os.getpid()}/{threading.get_ident()}/{secrets.token_hex(8)}"
