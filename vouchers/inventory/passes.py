"""Passes: a periodic task works for a moment, in one process, and so holds no orders back.

If something is left, it publishes itself again, behind what waits.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from time import monotonic
from typing import TypeVar

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from redis.exceptions import RedisError

from locks import LockBusy, LockNotOwned, RedisLock
from seckill_site.process_memory import ProcessMemory
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded, ledger_errors

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

PASS_S = 0.05
"""The time after which a pass leaves the worker to orders."""

WRITING = "seckill:writing"
"""This key exists while orders become rows, and for half a second afterwards."""

WRITING_MS = 500


def note_writing() -> None:
    """Note that orders become rows now."""
    with suppress(RedisError):
        ledger_connection().set(WRITING, 1, px=WRITING_MS)


def are_orders_written() -> bool:
    """Return whether orders become rows now.

    :raises LedgerUnavailable: Redis did not respond.
    """
    with ledger_errors():
        return bool(ledger_connection().exists(WRITING))


@contextmanager
def alone(name: str, *, wait_ms: int = 0) -> Iterator[RedisLock]:
    """Hold the lock of a task that one process does at a time, waiting at most ``wait_ms``.

    :raises LockBusy: another process is at it.
    :raises LedgerUnavailable: Redis did not respond.
    """
    lock = RedisLock(ledger_connection(), f"lock:{name}", lease_ms=settings.SECKILL_LEASE_MS)
    with ledger_errors(), lock.holding(wait_ms=wait_ms):
        yield lock


class Passes(ProcessMemory):
    """The passes of a periodic task; ``name`` is that of its lock.

    ``failing`` is for keys that are to come after all others.
    """

    failing: set[int]

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def forget(self) -> None:
        self._last, self.failing = 0, set()

    def in_turn(self, keys: Iterable[int]) -> Iterator[int]:
        """Yield the rest of this process's round: a pass that is cut starves no key."""
        keys = sorted(keys)
        for key in [key for key in keys if key > self._last] or keys:
            self._last = key if key != keys[-1] else 0
            yield key

    def work(
        self, items: Iterable[Item], work: Callable[[Item], bool | None], *, for_s: float = 0
    ) -> bool:
        """Work at items, alone and for ``PASS_S`` or as long; return whether some are left.

        ``work`` returns whether it has left a part of its item. An item that fails stops no other.
        Without items no lock is taken, and without the ledger nothing is done: the next call
        continues.
        """
        items, unserved, is_left = iter(items), self._last, False
        try:
            first = next(items, None)
            if first is None:
                return False
            with suppress(LockNotOwned), alone(self._name):
                until = monotonic() + (for_s or PASS_S)
                for item in chain([first], items):
                    unserved = self._last
                    try:
                        is_left = bool(work(item)) or is_left
                    except (LedgerUnavailable, NotLoaded, DatabaseError, ObjectDoesNotExist) as why:
                        logger.warning("%s of %.40s goes on later: %s", self._name, item, why)
                    if monotonic() >= until:
                        is_left = is_left or next(items, None) is not None
                        break
            return is_left
        except LockBusy:
            return False
        except LedgerUnavailable as error:
            logger.warning("the task %s goes on later: %s", self._name, error)
            return False
        finally:
            self._last = unserved  # the next pass serves what was only looked at
