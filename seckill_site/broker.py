"""The broker's transport: neither an unheard acknowledgement nor junk in the queue ends its use.

Where the broker is silent while a task ends, Kombu logs the acknowledgement as failed and goes on
counting the message as unfinished: a worker that may have one of them never asks for another.
Where it finds what is no message at all in the queue, Kombu lets the worker end.
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis, virtual

logger = logging.getLogger(__name__)


class QoS(redis.QoS):
    """Messages that are being worked on; each ends here with its task, whatever the broker says.

    One whose acknowledgement did not arrive is delivered again when it is no longer invisible.
    """

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message, or where the broker does not answer forget it here.

        :raises redis.RedisError: the broker does not know; it will deliver the message again
        """
        try:
            super().ack(delivery_tag)
        except Exception:
            virtual.QoS.ack(self, delivery_tag)
            raise


class Channel(redis.Channel):
    """A channel that counts with the ``QoS`` above, and drops what is no message."""

    QoS = QoS

    def _brpop_read(self, **options: Any) -> bool:
        try:
            return bool(super()._brpop_read(**options))  # type: ignore[misc]
        except (AttributeError, KeyError, TypeError, ValueError):
            # Redis has given it out, so it is gone; of ours nothing is lost, all are swept for.
            logger.exception("dropped what is no message from the queue")
            return True


class Transport(redis.Transport):
    """Redis as the broker."""

    Channel = Channel


def use_our_transport() -> None:
    """Let every connection to a broker on Redis be made with the ``Transport`` above."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
