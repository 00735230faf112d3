"""Other readers of V5's stream: poisoned entries, one name for two, loops with a slip of the pen,
and V6's lock. A reader that misses the lock cannot tell whether its holder writes or has died.

Points: those of V5's reader, with V6's inside where there is a lock.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any

from lab.keys import LabKeys
from lab.locks import NamedLock, OwnedLock
from lab.steps import v6
from lab.steps.step import Answer
from lab.steps.v5_stream import GROUP, WAIT_MS, Reader
from seckill_site.redis.ledger_connection import ledger_connection

logger = logging.getLogger(__name__)

POISONED = 2
"""Entries of an older release, with another name for a field: one for each of two processes."""


class LoopingReader(Reader):
    """Any error sends it back to its list, as in the course, and there the same entry is first."""

    step = "v5-poisoned"
    retried = (Exception,)  # breaks: lost, undersold

    @staticmethod
    def prepare(sale_id: int, units: int) -> None:
        Reader.prepare(sale_id, units)
        for number in range(POISONED):
            ledger_connection().xadd(LabKeys(sale_id).stream, {"sale_id": sale_id, "buyer": number})


class AsideReader(Reader):
    """An entry that is no order goes into a stream of its own, where a person finds it."""

    step = "v5-aside"
    prepare = LoopingReader.prepare

    def _write(self, stream: str, number: str, order: dict[str, str]) -> None:
        try:
            super()._write(stream, number, order)
        except (KeyError, ValueError):
            ledger_connection().xadd(f"{stream}:aside", order)
            ledger_connection().xack(stream, GROUP, number)


class OneNameReader(Reader):
    """All processes read as ``c1``, as written in the course, and share one pending list."""

    step = "v5-one-name"

    def __init__(self, process_name: str) -> None:
        super().__init__("c1")  # breaks: doubled


class NewOnlyReader(OneNameReader):
    """Its loop over the pending list reads ``>``, which is what nobody has read, in place of 0."""

    step = "v5-new-only"

    def _read(self, after: str) -> list[Any]:
        return super()._read(">")  # breaks: lost, undersold


class ReturningReader(Reader):
    """Its loop returns where it should go on: when there is nothing to do for once."""

    step = "v5-returning"

    def __init__(self, process_name: str) -> None:
        super().__init__(process_name)
        self._loop = self._run()

    def work_once(self) -> bool:
        for has_written in self._loop:
            return has_written
        time.sleep(WAIT_MS / 1_000)  # the loop is over: nobody reads
        return False

    def _run(self) -> Iterator[bool]:
        while True:
            if not super().work_once():
                return  # breaks: lost, undersold
            yield True


class DroppingReader(OneNameReader):
    """Without the lock, log the order and return, as in the course; then it is acknowledged."""

    step = "v6-dropped"

    def _buy(self, sale_id: int, user_id: int) -> None:
        if v6.buy(sale_id=sale_id, user_id=user_id, lock=OwnedLock) is Answer.BUSY:
            logger.error("user %s may not order twice", user_id)  # breaks: lost, undersold


class KeepingReader(OneNameReader):
    """Without the lock, leave the order in the pending list, and look again."""

    step = "v6-kept"
    retried = (*Reader.retried, TimeoutError)

    def _buy(self, sale_id: int, user_id: int) -> None:
        write_or_wait(sale_id, user_id, lock=OwnedLock)


def write_or_wait(sale_id: int, user_id: int, *, lock: type[NamedLock]) -> None:
    """Write an order under a lock of this form.

    :raises TimeoutError: the lock is taken.
    """
    if v6.buy(sale_id=sale_id, user_id=user_id, lock=lock) is Answer.BUSY:
        raise TimeoutError(f"the lock of user {user_id} is taken")
