"""The log of buyers whom a sale's rules refused, for board and report.

Each process collects in memory and writes once or twice a second, so a refusal costs a request
nothing. A process that is killed loses half a second. Nothing is decided by these rows.
"""

import logging
import threading
from typing import NamedTuple

from django.db import DatabaseError, connection
from django.db.models import Count

from orders.models import RuleRefusal
from seckill_site.clocks.database import database_now

logger = logging.getLogger(__name__)

FLUSH_S = 0.5

MOST_WAITING = 50_000
"""The most refusals that wait to be written; more are dropped, as are those that cannot be."""

MOST_WRITTEN = 100_000
"""The most refusals of which a process remembers that it has written them."""


class Refused(NamedTuple):
    """A buyer whom a rule has refused."""

    sale_id: int
    rule: str
    user_id: int


class _Log:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Refused] = set()
        self._written: set[Refused] = set()
        self._timer: threading.Timer | None = None

    def add(self, refused: Refused) -> None:
        with self._lock:
            if refused in self._written or len(self._waiting) >= MOST_WAITING:
                return
            self._waiting.add(refused)
            if self._timer is None:
                self._timer = threading.Timer(FLUSH_S, self._flush_and_close)
                self._timer.start()

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            timer, self._timer = self._timer, None
            waiting, self._waiting = self._waiting, set()
        if timer:
            timer.cancel()  # no effect if it is the caller
        try:
            now = database_now() if waiting else None
            rows = [
                RuleRefusal(
                    seckill_voucher_id=it.sale_id, rule=it.rule, user_id=it.user_id, refused_at=now
                )
                for it in sorted(waiting)
            ]
            RuleRefusal.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
        except DatabaseError as error:
            logger.warning("%s refusals by rules are not counted: %s", len(waiting), error)
            return
        with self._lock:
            if len(self._written) + len(waiting) > MOST_WRITTEN:
                self._written.clear()
            self._written |= waiting

    def forget(self) -> None:
        """Forget all, as a new process."""
        with self._lock:
            timer, self._timer = self._timer, None
            self._waiting.clear()
            self._written.clear()
        if timer:
            timer.cancel()

    def _flush_and_close(self) -> None:
        try:
            self.flush()
        finally:
            connection.close()  # this thread has its own, and ends


_log = _Log()


def note_refusal(refused: Refused) -> None:
    """Note that a rule has refused a buyer. Never raises."""
    _log.add(refused)


flush_refusals = _log.flush
"""Write this process's refusals at once."""

forget_refusals = _log.forget


def count_refused(*, sale_id: int) -> dict[str, int]:
    """Return how many buyers each rule has refused in a sale."""
    rows = RuleRefusal.objects.filter(seckill_voucher=sale_id).order_by()
    return dict(rows.values_list("rule").annotate(Count("pk")))
