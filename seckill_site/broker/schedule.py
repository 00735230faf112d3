"""Beat's schedule: in memory, and measured by the monotonic clock."""

import logging
import time
from typing import Any

from celery.beat import Scheduler

logger = logging.getLogger(__name__)

LONGEST_S = 60.0
RETRY_S = 1.0
"""The pause after the broker took no message."""


class MonotonicScheduler(Scheduler):
    """A schedule by intervals. At the start each task is due, so nothing needs to be remembered.

    A wall clock that jumps moves nothing, and each message waits only once in the broker, so one
    too many costs nothing.
    """

    _due: dict[str, float]

    def setup_schedule(self) -> None:
        """Read the settings; without a result backend there is nothing else to do regularly."""
        self._due = {}
        self.merge_inplace(self.app.conf.beat_schedule)
        logger.info("beat sends %d periodic tasks", len(self.schedule))

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due; return the seconds until something is."""
        for name, entry in self.schedule.items():
            if self._due.get(name, 0.0) > time.monotonic():
                continue
            try:
                self.apply_async(entry, producer=self.producer, advance=False, retry=False)
            except Exception as error:  # a transport may raise anything
                logger.warning("%s not sent, trying again: %s", name, error)
                self.close()  # the next connection resolves the broker's address again
                return RETRY_S
            interval: Any = entry.schedule
            self._due[name] = time.monotonic() + interval.run_every.total_seconds()
        until_s = min(self._due.values(), default=float("inf")) - time.monotonic()
        return min(max(until_s, 0.0), LONGEST_S)

    def _ensure_connected(self) -> Any:
        """Connect once; ``tick`` tries again."""
        self.connection.connect()
        return self.connection
