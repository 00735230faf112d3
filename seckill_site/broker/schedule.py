"""Beat's schedule: in memory, and measured by the monotonic clock."""

import logging
import time
from collections import defaultdict
from functools import cached_property
from typing import Any

from celery.beat import Scheduler
from redis.exceptions import RedisError

from seckill_site.broker.heartbeats import note_beat
from seckill_site.broker.pace import AWAKE, MAY_WAIT, QUIET_PACE, stay_awake
from seckill_site.redis.ledger_connection import ledger_connection

logger = logging.getLogger(__name__)

LONGEST_S = 60.0
RETRY_S = 1.0
"""The pause after the broker took no message."""


class MonotonicScheduler(Scheduler):
    """A schedule by intervals. At the start each task is due, so nothing needs to be remembered.

    A wall clock that jumps moves nothing, and each message waits only once in the broker, so one
    too many costs nothing. Tasks of one queue and interval share a message. It is always the same,
    so few pile up when no worker runs.
    """

    _started: float
    _sent: dict[tuple[str, float], float]
    _wakes = True
    """Whether the shop is to be awake for a minute: at the start, and after Redis was away."""

    def setup_schedule(self) -> None:
        """Read the settings; without a result backend there is nothing else to do regularly."""
        self._started, self._sent = time.monotonic(), {}
        self.merge_inplace(self.app.conf.beat_schedule)
        logger.info("beat sends %d periodic tasks", len(self.schedule))

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due; return the seconds until something is."""
        now, until_s = time.monotonic() - self._started, LONGEST_S
        for (queue, interval_s), entries in self._groups().items():
            if self._sent.get((queue, interval_s), -1.0) // interval_s < now // interval_s:
                try:
                    self._send(queue, entries)
                except Exception as error:  # a transport may raise anything
                    names = ", ".join(it.name for it in entries)
                    logger.warning("%s not sent, trying again: %s", names, error)
                    self.close()  # the next connection resolves the broker's address again
                    return RETRY_S
                self._sent[queue, interval_s] = now
            until_s = min(until_s, interval_s - now % interval_s)
        return max(until_s + now + self._started - time.monotonic(), 0.0)

    def _groups(self) -> dict[tuple[str, float], list[Any]]:
        """Return the tasks by queue and present interval, in the order of the settings."""
        groups, pace = defaultdict(list), 1 if self._is_awake() else QUIET_PACE
        for name in self.app.conf.beat_schedule:
            entry: Any = self.schedule[name]
            queue = self.app.amqp.router.route({}, entry.task)["queue"].name
            interval_s = entry.schedule.run_every.total_seconds()
            groups[queue, interval_s * (pace if name in MAY_WAIT else 1)].append(entry)
        return groups

    def _send(self, queue: str, entries: list[Any]) -> None:
        entry, names = entries[0], [it.task for it in entries]
        if len(entries) > 1:
            options = {**entry.options, "queue": queue}
            what: dict[str, Any] = {"task": "orders.tasks.run_passes", "kwargs": {"names": names}}
            entry = self.Entry(**what, options=options, app=self.app)
        self.apply_async(entry, producer=self.producer, advance=False)

    def _is_awake(self) -> bool:
        try:
            if self._wakes:
                stay_awake()
            self._wakes = False
            is_awake = bool(ledger_connection().exists(AWAKE))
            note_beat(is_quiet=not is_awake)
            return is_awake
        except RedisError:
            self._wakes = True
            return True

    @cached_property
    def connection(self) -> Any:
        """The connection to the broker; RabbitMQ notices by its heartbeat if beat is gone."""
        return self.app.connection_for_write(heartbeat=self.app.conf.broker_heartbeat)

    def _ensure_connected(self) -> Any:
        """Try each address; ``tick`` tries again."""
        return self.connection.ensure_connection(max_retries=len(self.connection.alt) or 1)
