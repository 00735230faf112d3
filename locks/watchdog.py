"""Renewal of all leases of this process by one daemon thread.

The thread starts with the first lease and ends when it wakes and finds none. It wakes a third of a
lease after the last success, and sooner after a failure. Leases that are due soon are renewed
together with those that are due, in one round trip, so that they soon keep time. It holds leases
weakly: if the holder's thread or its lock object is gone, nobody can release any more, and the
lease expires.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from weakref import WeakSet

from redis import ResponseError

from locks import scripts
from locks.lease import Lease, short_list
from locks.servers import server_of

logger = logging.getLogger(__name__)

THREAD_NAME = "locks-watchdog"

SOON_SHARE = 1 / 6
"""The share of a lease by which it may be renewed early together with another one."""


class Watchdog:
    """The leases to renew, and the thread that renews them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start without leases and thread, as a forked child does."""
        self._changed = threading.Condition()
        self._leases: WeakSet[Lease] = WeakSet()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def watch(self, lease: Lease) -> None:
        """Renew this lease from now on, while its holder lives."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                # It waits for our mutex first, so it does not miss the lease that it starts for.
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
            self._leases.add(lease)
            if lease.renew_at < self._wakes_at:
                self._changed.notify()

    def forget(self, lease: Lease) -> None:
        """Stop renewing this lease.

        A renewal in flight does no harm: before the release it is a renewal; after it the lock is
        no longer the owner's, and nobody reads the answer.
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
            while self._schedule():
                pause_s = self._wakes_at - time.monotonic()
                if pause_s <= 0:
                    return True
                self._changed.wait(pause_s)
            self._thread = None
            return False

    def _schedule(self) -> bool:
        """Set the time of the next renewal, at once for a lost lease; return whether there is one.

        No name here may keep a lease alive while the thread sleeps.
        """
        self._wakes_at = min(
            (0.0 if lease.lost else lease.renew_at for lease in self._leases), default=-1.0
        )
        return self._wakes_at >= 0

    def _report_lost(self) -> None:
        """Drop lost leases and tell their holders, outside the mutex: they may use locks there."""
        with self._changed:
            lost = [lease for lease in self._leases if lease.lost]
            for lease in lost:
                self._leases.discard(lease)
        for lease in lost:
            logger.warning("lost: %s of %s", short_list(lease.names), lease.owner)
            if lease.on_lost is not None:
                # The holder's own code must neither end nor delay the renewal of other leases.
                threading.Thread(target=_call, args=(lease.on_lost,), daemon=True).start()

    def _renew_due(self) -> None:
        now = time.monotonic()
        by_server: defaultdict[Hashable, list[Lease]] = defaultdict(list)
        with self._changed:
            for lease in self._leases:
                if lease.renew_at - lease.lease_ms * SOON_SHARE / 1000 <= now:
                    by_server[server_of(lease.client)].append(lease)
        for leases in by_server.values():
            _renew(leases)


def _call(on_lost: Callable[[], None]) -> None:
    try:
        on_lost()
    except Exception:
        logger.exception("on_lost failed")


def _renew(leases: list[Lease]) -> None:
    """Renew leases of one server."""
    sent_at = time.monotonic()
    try:
        results = scripts.renew(leases[0].client, [lease.renewal for lease in leases])
    except Exception as error:  # whatever it is, renewal must not end silently
        logger.warning("renewal of %d leases failed, trying again: %r", len(leases), error)
        for lease in leases:
            lease.postpone()
        return
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
