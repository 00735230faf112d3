"""Publishing fulfil tasks: one message per burst, with a short timeout, and never an error.

The sweep sends what could not be sent. While the broker is down, one publish waits for
``SECKILL_PUBLISH_TIMEOUT_MS``; then none does for ``SECKILL_PUBLISH_PAUSE_MS``. At the front door
it is a thread that waits (``publisher.py``), in Django alone a buyer.
"""

import logging

from celery import current_app
from django.conf import settings
from kombu.pools import producers

from seckill_site.broker.messages import impatient, publish_options
from seckill_site.metrics import counter
from seckill_site.redis.breaker import Breaker

logger = logging.getLogger(__name__)


class BrokerSkipped(Exception):
    """The broker did not take the last message, and is not asked yet."""


breaker = Breaker(BrokerSkipped, server="broker", pause_s=settings.SECKILL_PUBLISH_PAUSE_MS / 1000)

FULFIL_SALE = "orders.tasks.fulfill_sale"
"""Published by name, so a web process does not import what only workers run."""


def publish_fulfilment(*, sale_id: int) -> None:
    """Publish the fulfil task of a sale; a failure is counted and logged, never raised."""
    publish(FULFIL_SALE, sale_id=sale_id)


def publish(task_name: str, *, in_s: float = 0, **arguments: int) -> bool:
    """Publish a task that beat publishes again if it is lost; return whether the broker took it.

    It is not queued beside its equal, so a queue without workers does not grow.
    """
    try:
        with breaker.attempt():
            _send(task_name, arguments, in_s=in_s)
    except BrokerSkipped:
        counter("publishes", "skipped").inc()
        return False
    # A transport may raise anything. The order is accepted, and the sweep sends the task again.
    except Exception as error:
        counter("publishes", "failed").inc()
        logger.warning("%s %s not sent, it will be swept: %s", task_name, arguments, error)
        return False
    counter("publishes", "sent").inc()
    return True


def _send(task_name: str, arguments: dict[str, int], *, in_s: float) -> None:
    """Send a task over a connection of its own kind: with short timeouts, and no retries."""
    longest_s = settings.SECKILL_PUBLISH_TIMEOUT_MS / 1000
    connection = current_app.connection_for_write(transport_options=impatient(longest_s))
    queue = current_app.amqp.router.route({}, task_name)["queue"].name
    with producers[connection].acquire(block=True, timeout=longest_s) as producer:
        try:
            current_app.send_task(
                task_name,
                kwargs=arguments,
                producer=producer,
                retry=False,
                ignore_result=True,
                **publish_options(once=True, pause_s=in_s, queue=queue),
            )
        except Exception:
            producer.connection.collect()  # else it would wait again, for a proper end
            raise
