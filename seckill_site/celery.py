"""The Celery application: ``celery -A seckill_site worker`` and ``celery -A seckill_site beat``.

Its transport survives a failed acknowledgement, junk in the queue and a lost broker. If an
acknowledgement fails, Kombu still counts the message as unfinished, and a worker with a prefetch
limit of one never asks for another. If the queue holds junk, or the broker is lost while a task
runs, Kombu may end the worker.
"""

import logging
import os
from typing import Any

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES, redis, virtual
from redis.exceptions import ConnectionError as RedisConnectionError

logger = logging.getLogger(__name__)


class QoS(redis.QoS):
    """The messages being processed. Each ends with its task, even if its acknowledgement fails.

    The broker delivers an unacknowledged message again after the visibility timeout.
    """

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message, and forget it here even if the broker does not respond.

        :raises redis.RedisError: the broker will deliver the message again
        """
        try:
            super().ack(delivery_tag)
        except Exception:
            virtual.QoS.ack(self, delivery_tag)
            raise


class Channel(redis.Channel):
    """A channel that uses the ``QoS`` above and drops junk."""

    QoS = QoS

    def _brpop_read(self, **options: Any) -> bool:
        try:
            return bool(super()._brpop_read(**options))  # type: ignore[misc]
        except (AttributeError, KeyError, TypeError, ValueError):
            # Redis has removed it from the queue. No order is lost: the sweep sends its task again.
            logger.exception("dropped junk from the queue")
            return True

    def _connparams(self, **options: Any) -> dict[str, Any]:
        """Return where the broker is; a closed channel raises what Kombu and Celery expect.

        A task that outlives its connection acknowledges here, and Kombu closes a channel twice.

        :raises RedisConnectionError: the connection is closed
        """
        if self.connection is None or self.connection.client is None:
            raise RedisConnectionError("the connection to the broker is closed")
        parameters: dict[str, Any] = super()._connparams(**options)  # type: ignore[misc]
        return parameters


class Transport(redis.Transport):
    Channel = Channel


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
app = Celery("seckill_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
