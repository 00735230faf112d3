"""Passes: a periodic task works for a moment, and one process at a time works at it.

So it keeps no more than one process of a worker from orders, and that one not for long. The task
publishes itself again if something is left: behind what waits.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from time import monotonic
from typing import TypeVar

from django.conf import settings

from locks import LockBusy, LockNotOwned, RedisLock
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import ledger_errors

Item = TypeVar("Item")

PASS_S = 0.2
"""The time after which a pass leaves the worker to orders."""


@contextmanager
def alone(name: str) -> Iterator[RedisLock]:
    """Hold the lock of a periodic task.

    :raises LockBusy: another process is at it.
    :raises LedgerUnavailable: Redis did not respond.
    """
    lease_ms = settings.SECKILL_LEASE_MS
    with (
        ledger_errors(),
        RedisLock(ledger_connection(), f"lock:{name}", lease_ms=lease_ms) as lock,
    ):
        yield lock


class Passes:
    """The passes of a periodic task; ``name`` is that of its lock."""

    def __init__(self, name: str, *, for_s: float | None = None) -> None:
        self._name, self._for_s, self._last = name, for_s, 0

    def in_turn(self, keys: Iterable[int]) -> Iterator[int]:
        """Yield keys from the one after this process's last: a pass that is cut starves none."""
        for key in sorted(keys, key=lambda key: (key <= self._last, key)):
            self._last = key
            yield key

    def work(self, items: Iterable[Item], work: Callable[[Item], bool | None]) -> bool:
        """Work at the items, alone and until the pass is over; return whether any may be left.

        ``work`` returns whether it left some of its item. Without an item no lock is taken.

        :raises LedgerUnavailable: Redis did not respond; the next call continues.
        """
        items, is_left = iter(items), False
        first = next(items, None)
        if first is None:
            return False
        with suppress(LockBusy, LockNotOwned), alone(self._name):
            until = monotonic() + (PASS_S if self._for_s is None else self._for_s)
            for item in chain([first], items):
                is_left = bool(work(item)) or is_left
                if monotonic() >= until:
                    return True
            return is_left
        return False
