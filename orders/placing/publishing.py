"""Publishing fulfil tasks: one message per burst, with a short timeout, and never an error.

The sweep sends what could not be sent. While the broker is down, one buyer waits for
``SECKILL_PUBLISH_TIMEOUT_MS``; then nobody waits for ``SECKILL_PUBLISH_PAUSE_MS``.
"""

import logging
import threading
import time

from celery import current_app
from django.conf import settings
from kombu import Connection
from kombu.pools import producers

from seckill_site.broker.messages import publish_options
from seckill_site.metrics import PUBLISHES

logger = logging.getLogger(__name__)


class CircuitBreaker:
    """A circuit breaker for the broker, shared by the threads of a process."""

    def __init__(self, *, pause_ms: int) -> None:
        self._pause_seconds = pause_ms / 1000
        self._open_until = 0.0
        self._guard = threading.Lock()

    def closed(self) -> bool:
        """Return whether the broker may be asked."""
        with self._guard:
            return time.monotonic() >= self._open_until

    def trip(self) -> None:
        """Open the circuit for the pause, so that nobody asks the broker."""
        with self._guard:
            self._open_until = time.monotonic() + self._pause_seconds


circuit = CircuitBreaker(pause_ms=settings.SECKILL_PUBLISH_PAUSE_MS)


FULFILL_SALE = "orders.tasks.fulfill_sale"
"""Published by name, so a web process does not import what only workers run."""


def publish_fulfillment(*, sale_id: int) -> None:
    """Publish the fulfil task of a sale; a failure is counted and logged, never raised."""
    publish(FULFILL_SALE, sale_id=sale_id)


def _publisher_connection() -> Connection:
    """Return the connection for publishing: the broker's, with short timeouts and no retries."""
    seconds = settings.SECKILL_PUBLISH_TIMEOUT_MS / 1000
    options = {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        # Without a limit kombu retries the connection forever.
        "max_retries": 0,
    }
    connection: Connection = current_app.connection_for_write(transport_options=options)
    return connection


def publish(task_name: str, *, in_s: float = 0, **arguments: int) -> bool:
    """Publish a task that beat publishes again if it is lost; return whether the broker took it.

    It is not queued beside its equal, so a queue without workers does not grow.
    """
    if not circuit.closed():
        PUBLISHES.labels("skipped").inc()
        return False
    try:
        pool = producers[_publisher_connection()]
        with pool.acquire(
            block=True, timeout=settings.SECKILL_PUBLISH_TIMEOUT_MS / 1000
        ) as producer:
            current_app.send_task(
                task_name,
                kwargs=arguments,
                producer=producer,
                retry=False,
                ignore_result=True,
                **publish_options(once=True, pause_s=in_s),
            )
    # A transport may raise anything. The order is accepted, and the sweep sends the task again.
    except Exception as error:
        circuit.trip()
        PUBLISHES.labels("failed").inc()
        logger.warning("%s %s not sent, it will be swept: %s", task_name, arguments, error)
        return False
    PUBLISHES.labels("sent").inc()
    return True
