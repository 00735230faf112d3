"""Leases, and their renewal: one daemon thread renews all leases of this process.

The thread starts with the first lease and ends when it wakes and finds none. It wakes a third of a
lease after the last success, and sooner after a failure. Leases that are due soon are renewed
together with those that are due, in one round trip, so that their renewals align. It references
leases weakly: once the holder's thread or lock object is gone, nobody can release the lock, and the
lease expires.
"""

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import InitVar, dataclass
from typing import cast
from weakref import WeakSet

from redis import Redis, ResponseError

from locks import scripts
from locks.protocol import AnyRedis, RenewResult, server_of

logger = logging.getLogger(__name__)

THREAD_NAME = "locks-watchdog"

SOON_SHARE = 1 / 6
"""The fraction of a lease by which it may be renewed early, together with another one."""


DRIFT_SHARE, DRIFT_S = 0.01, 0.002
"""How much earlier than its keys a lease ends, because two clocks measure it (RedLock's bound)."""


@dataclass(eq=False)
class Lease:
    """A holder's view of its locks, by this process's own clock.

    The clock starts *before* each request is sent, so that the lease ends before the keys do. A
    lost lease stays lost: a holder that was told so has stopped working.
    """

    client: AnyRedis
    names: tuple[str, ...]
    owner: str
    lease_ms: int
    sent_at: InitVar[float]
    token: int | None = None
    on_lost: Callable[[], object] | None = None
    ended: bool = False
    _lost: bool = False

    def __post_init__(self, sent_at: float) -> None:
        self._start(sent_at)

    @property
    def renewal(self) -> tuple[Sequence[str], str, int]:
        """The request for ``scripts.renew``."""
        return self.names, self.owner, self.lease_ms

    @property
    def lost(self) -> bool:
        """Whether the locks are gone, or may be because no renewal succeeded in time."""
        if self.names and not self.ended and time.monotonic() >= self._ends_at:
            self._lost = True
        return self._lost

    def apply(self, result: RenewResult, *, sent_at: float) -> None:
        """Restart the lease from ``sent_at`` (monotonic seconds) if it was renewed in time."""
        if result is RenewResult.LOST and not self.ended:
            self.mark_lost()
        elif not self.lost:
            self._start(sent_at)

    def postpone(self) -> None:
        """Schedule the next renewal soon, because the last one failed."""
        self.renew_at = time.monotonic() + self.lease_ms / 10_000

    def mark_lost(self) -> None:
        """Note that the locks in Redis are no longer ours."""
        self._lost = True

    def end(self) -> None:
        """Stop the clock before the release."""
        self._lost = self.lost
        self.ended = True

    def _start(self, sent_at: float) -> None:
        lease_s = self.lease_ms / 1000
        self._ends_at = sent_at + lease_s * (1 - DRIFT_SHARE) - DRIFT_S
        self.renew_at = sent_at + lease_s / 3


def short_list(names: Sequence[str]) -> str:
    """Return the first names, for messages."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


class Leases:
    """The leases to renew, while their holders live."""

    def __init__(self) -> None:
        self._leases: WeakSet[Lease] = WeakSet()
        self.add, self.discard = self._leases.add, self._leases.discard

    def wakes_at(self) -> float:
        """Return the time of the next renewal, 0 for a lost lease, or -1 without leases.

        No local variable may keep a lease alive while its renewer sleeps.
        """
        return min((0.0 if it.lost else it.renew_at for it in self._leases), default=-1.0)

    def take_lost(self) -> list[Lease]:
        """Drop the lost leases and return them."""
        lost = [lease for lease in self._leases if lease.lost]
        for lease in lost:
            self._leases.discard(lease)
            logger.warning("lost: %s of %s", short_list(lease.names), lease.owner)
        return lost

    def due(self) -> list[list[Lease]]:
        """Return the leases that are due now or soon, by server."""
        now = time.monotonic()
        by_server: defaultdict[Hashable, list[Lease]] = defaultdict(list)
        for lease in self._leases:
            if lease.renew_at - lease.lease_ms * SOON_SHARE / 1000 <= now:
                by_server[server_of(lease.client)].append(lease)
        return list(by_server.values())


class Watchdog:
    """The leases of this process's threads, and the thread that renews them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start without leases and without a thread, as in a forked child."""
        self._changed = threading.Condition()
        self._leases = Leases()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def watch(self, lease: Lease) -> None:
        """Renew this lease from now on, while its holder lives."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                # The thread first waits for our mutex, so it does not miss the lease it starts for.
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
            self._leases.add(lease)
            if lease.renew_at < self._wakes_at:
                self._changed.notify()

    def forget(self, lease: Lease) -> None:
        """Stop renewing this lease.

        A renewal in flight does no harm: before the release it only renews; after it the lock is no
        longer the owner's, and nobody reads the reply.
        """
        with self._changed:
            self._leases.discard(lease)

    def _run(self) -> None:
        while self._wait():
            self._report_lost()
            self._renew_due()

    def _wait(self) -> bool:
        """Sleep until a lease is due; return False once no lease is left to renew."""
        with self._changed:
            while (wakes_at := self._leases.wakes_at()) >= 0:
                self._wakes_at = wakes_at
                pause_s = wakes_at - time.monotonic()
                if pause_s <= 0:
                    return True
                self._changed.wait(pause_s)
            self._thread = None
            return False

    def _report_lost(self) -> None:
        """Drop lost leases and notify their holders outside the mutex, as they may use locks."""
        with self._changed:
            lost = self._leases.take_lost()
        for lease in lost:
            if lease.on_lost is not None:
                # The holder's own code must neither end nor delay the renewal of other leases.
                threading.Thread(target=_call, args=(lease.on_lost,), daemon=True).start()

    def _renew_due(self) -> None:
        with self._changed:
            due = self._leases.due()
        for leases in due:
            _renew(leases)


def _call(on_lost: Callable[[], object]) -> None:
    try:
        on_lost()
    except Exception:
        logger.exception("on_lost failed")


def _renew(leases: list[Lease]) -> None:
    """Renew leases of one server."""
    sent_at, client = time.monotonic(), cast(Redis, leases[0].client)
    try:
        results = scripts.renew(client, [lease.renewal for lease in leases])
    except Exception as error:  # whatever it is, renewal must not end silently
        postpone(leases, error)
    else:
        apply(leases, results, sent_at=sent_at)


def postpone(leases: Sequence[Lease], error: Exception) -> None:
    """Schedule another attempt soon, because one failed."""
    logger.warning("renewal of %d leases failed, trying again: %r", len(leases), error)
    for lease in leases:
        lease.postpone()


def apply(
    leases: Sequence[Lease], results: Sequence[RenewResult | ResponseError], *, sent_at: float
) -> None:
    """Apply the results of a renewal."""
    for lease, result in zip(leases, results, strict=True):
        if isinstance(result, ResponseError):
            logger.warning(
                "renewal of %s failed, trying again: %r", short_list(lease.names), result
            )
            lease.postpone()
        else:
            lease.apply(result, sent_at=sent_at)


_watchdog = Watchdog()
watch, forget = _watchdog.watch, _watchdog.forget
os.register_at_fork(after_in_child=_watchdog.reset)
