"""Renews the leases of this process, all of them by one daemon thread.

The thread starts with the first lease and ends by itself when it wakes and finds none. It wakes a
third of a lease after the last success, and sooner after a failure; what is due soon is renewed
with what is due, in one round trip, so that many leases soon keep time. It holds leases weakly:
where the holder's thread or its lock object is gone, nobody can release any more, and the lease
runs out.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from weakref import WeakSet

from redis import Redis, ResponseError

from locks import scripts
from locks.lease import Lease, shown
from locks.protocol import RenewResult
from locks.servers import server_of

logger = logging.getLogger(__name__)

THREAD_NAME = "locks-watchdog"

SOON_SHARE = 1 / 6
"""How much of its lease before it is due a lease is renewed with another one."""


class Watchdog:
    """The leases to renew and the thread that does it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: WeakSet[Lease] = WeakSet()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def watch(self, lease: Lease) -> None:
        """Renew this lease from now on."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._started()
            self._leases.add(lease)
            if lease.renew_at < self._wakes_at:
                self._changed.notify()

    def forget(self, lease: Lease) -> None:
        """Renew this lease no more.

        A renewal on its way meanwhile can do no harm: sent before the release it is a renewal,
        after it the lock is not the owner's, and its answer is not listened to.
        """
        with self._changed:
            self._leases.discard(lease)

    def _started(self) -> threading.Thread:
        # It waits for our mutex first, so it does not miss the lease that it is started for.
        thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while self._wait():
            self._tell_lost()
            self._renew_due()

    def _wait(self) -> bool:
        """Sleep until there is something to do; false when there is nothing left to renew."""
        with self._changed:
            while self._schedule():
                pause_s = self._wakes_at - time.monotonic()
                if pause_s <= 0:
                    return True
                self._changed.wait(pause_s)
            self._thread = None
            return False

    def _schedule(self) -> bool:
        """Note when the next renewal is due, or at once what is lost; false when nothing is."""
        # No name here may keep a lease alive while the thread sleeps.
        self._wakes_at = min(
            (0.0 if lease.lost else lease.renew_at for lease in self._leases), default=-1.0
        )
        return self._wakes_at >= 0

    def _tell_lost(self) -> None:
        """Drop what is lost and tell its holders, outside the mutex: they may use locks there."""
        with self._changed:
            lost = [lease for lease in self._leases if lease.lost]
            for lease in lost:
                self._leases.discard(lease)
        for lease in lost:
            logger.warning("lost: %s of %s", shown(lease.names), lease.owner)
            if lease.on_lost is not None:
                # The holder's own, so it must neither end nor delay the renewal of the others.
                threading.Thread(target=_call, args=(lease.on_lost,), daemon=True).start()

    def _renew_due(self) -> None:
        now = time.monotonic()
        by_server: defaultdict[Hashable, list[Lease]] = defaultdict(list)
        with self._changed:
            for lease in self._leases:
                if lease.renew_at - lease.lease_ms * SOON_SHARE / 1000 <= now:
                    by_server[server_of(lease.client)].append(lease)
        for leases in by_server.values():
            _renew(leases[0].client, leases)


def _call(on_lost: Callable[[], None]) -> None:
    try:
        on_lost()
    except Exception:
        logger.exception("on_lost failed")


def _renew(client: Redis, leases: list[Lease]) -> None:
    sent_at = time.monotonic()
    try:
        results = scripts.renew(client, [(it.names, it.owner, it.lease_ms) for it in leases])
    except Exception as error:  # whatever it is, renewal must not end without a word
        logger.warning("renewal of %d leases failed, trying again: %r", len(leases), error)
        for lease in leases:
            lease.postpone()
        return
    for lease, result in zip(leases, results, strict=True):
        if isinstance(result, ResponseError):
            logger.warning("renewal of %s failed, trying again: %r", shown(lease.names), result)
            lease.postpone()
        elif result is RenewResult.RENEWED:
            lease.renewed(sent_at=sent_at)
        elif not lease.ended:
            lease.lose()


_watchdog = Watchdog()


def watch(lease: Lease) -> None:
    """Renew this lease from now on, while its holder lives."""
    _watchdog.watch(lease)


def forget(lease: Lease) -> None:
    """Renew this lease no more."""
    _watchdog.forget(lease)


def _start_afresh() -> None:
    """Forget the parent's leases and its thread, which a forked child does not have."""
    global _watchdog
    _watchdog = Watchdog()


os.register_at_fork(after_in_child=_start_afresh)
