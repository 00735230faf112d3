"""The last step as taught: a script decides, a queue keeps the order, and its consumer works under
a renewed lock with the name of the buyer. A consumer that misses the lock drops its order, although
each order is a unit that the script has given.

The queue is first in memory, then a stream. Beside them is a reader that drops nothing, with a lock
for each buyer and sale. All three renew their locks, and a watchdog freezes with its process.

Points: those of V5, with V6's inside.
"""

import logging

from lab.locks import WatchdogLock
from lab.steps import v6
from lab.steps.step import Answer
from lab.steps.stream_readers import KeepingReader, OneNameReader, write_or_wait
from lab.steps.v5 import QueueWriter

logger = logging.getLogger(__name__)


def write_or_drop(sale_id: int, user_id: int) -> None:
    """Write an order under the lock of its buyer; without the lock, only log it."""
    lock = WatchdogLock
    if v6.buy(sale_id=sale_id, user_id=user_id, lock=lock, name_of=v6.of_buyer) is Answer.BUSY:
        logger.error("user %s may not order twice", user_id)  # breaks: lost, undersold


class LockingWriter(QueueWriter):
    def _buy(self, sale_id: int, user_id: int) -> None:
        write_or_drop(sale_id, user_id)


class LockingReader(OneNameReader):
    step = "v6-stream"

    def _buy(self, sale_id: int, user_id: int) -> None:
        write_or_drop(sale_id, user_id)


class RenewingReader(KeepingReader):
    """Without the lock of its buyer and sale, the order stays in the pending list."""

    step = "v6-renewed"

    def _buy(self, sale_id: int, user_id: int) -> None:
        write_or_wait(sale_id, user_id, lock=WatchdogLock)
