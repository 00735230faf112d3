"""What this shop asks of a message beyond Celery: to wait only once, and to wait for a while.

Note [No clock but Redis'] No message expires, and none names a time: the sender's wall clock and
the worker's may differ. A message with ``once`` is not queued while its equal waits, so a queue
without workers does not grow. One with a pause lies among the unacknowledged until Redis, by its
own clock, has let the pause pass.

Note [RabbitMQ] RabbitMQ looks for no equal of a message and keeps none back. So there a message
with ``once`` expires, by RabbitMQ's own clock: a queue without workers has an end, and beat sends
each again. With classic queues a pause is Celery's: the worker that takes the message waits, by its
own clock. With quorum queues it is RabbitMQ's: the message expires in a queue for pauses of this
length, from where RabbitMQ moves it to its own (``docs/adr/0056``).
"""

import json
import uuid
from collections.abc import Mapping
from math import ceil
from typing import Any

from django.conf import settings
from kombu import Queue

from seckill_site.redis.address import broker_addresses, is_rabbitmq

ONCE, PAUSE_S, FORMAT = "once", "pause_s", "format"

MESSAGE_FORMAT = 1
"""Raised with a message that workers of the release before would drop or misread."""

LIFE_S = 300
"""Seconds that a message with ``once`` waits in RabbitMQ: Note [RabbitMQ]."""

_HEADERS = ("lang", "task", "argsrepr", "kwargsrepr", "ignore_result", ONCE, FORMAT)
"""Not what the sender adds of its own, as a task's time limits where it has imported the task."""

_PROPERTIES = ("delivery_mode", "delivery_info", "priority", "body_encoding")

Message = dict[str, Any]
"""A message as the broker stores it."""


def publish_options(
    *, once: bool = False, pause_s: float = 0, queue: str = "celery"
) -> dict[str, Any]:
    """Return options for ``send_task``: wait at most once, and only after a pause.

    That is for our transport, and for classic queues of RabbitMQ: Note [RabbitMQ].
    """
    headers = {ONCE: once, FORMAT: MESSAGE_FORMAT} | ({PAUSE_S: pause_s} if pause_s else {})
    options: dict[str, Any] = {"headers": headers}
    if is_rabbitmq() and pause_s and settings.SECKILL_QUORUM_QUEUES:
        options |= {"queue": pause_queue(queue, pause_s=pause_s)}
    elif is_rabbitmq():
        options |= {"expiration": LIFE_S} if once else {}
        options |= {"countdown": pause_s} if pause_s else {}
    return options


def task_queue(name: str, *, is_quorum: bool) -> Queue:
    """Return a queue of tasks, of RabbitMQ's quorum type or of the usual one.

    What RabbitMQ moves here after a pause has no end of its own any more, so the queue gives one.
    """
    return _quorum_queue(name, ttl_s=LIFE_S) if is_quorum else Queue(name, routing_key=name)


def pause_queue(queue: str, *, pause_s: float) -> Queue:
    """Return the queue in which messages of RabbitMQ wait before they come to this one.

    A pause is of whole seconds, so that few lengths, and few queues, are in use.
    """
    seconds = max(1, ceil(pause_s))
    arguments = {
        # Kombu declares what expires with each message, even if somebody has deleted it.
        "x-expires": (seconds + LIFE_S) * 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # as that strategy wants
    }
    return _quorum_queue(f"{queue}.after-{seconds}-s", ttl_s=seconds, **arguments)


def _quorum_queue(name: str, *, ttl_s: int, **arguments: Any) -> Queue:
    arguments |= {"x-queue-type": "quorum", "x-message-ttl": ttl_s * 1000}
    return Queue(name, routing_key=name, queue_arguments=arguments)


def impatient(timeout_s: float, *, connect_s: float | None = None) -> dict[str, float]:
    """Return options for a connection that waits no longer than this and tries each address once.

    The first are those of Redis, then those of RabbitMQ. Without a limit Kombu retries for ever.
    """
    addresses = broker_addresses()
    connect_s = (connect_s or timeout_s) / addresses
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": connect_s,
        "read_timeout": timeout_s,
        "write_timeout": timeout_s,
        "connect_timeout": connect_s,
        "max_retries": addresses - 1,
    }


def is_newer(headers: Mapping[str, Any]) -> bool:
    """Say whether a message is one of a newer release, which this one leaves to others."""
    found = headers.get(FORMAT)
    return isinstance(found, int) and found > MESSAGE_FORMAT


def waits_once(message: Message) -> bool:
    """Say whether a message is not to be queued beside its equal."""
    return message["headers"].get(ONCE) is True


def pause_of(message: Message) -> float:
    """Return the seconds for which a message is to wait before it is queued."""
    return float(message["headers"].get(PAUSE_S, 0))


def packed(message: Message) -> str:
    """Return what lies in the queue; of messages that wait once, equal ones are the same text.

    So their ids are made from what they ask for, and each gets one of its own when it is taken.
    """
    if not waits_once(message):
        return json.dumps(message)
    headers = {name: message["headers"].get(name) for name in _HEADERS}
    properties = {name: message["properties"].get(name) for name in _PROPERTIES}
    own = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{headers['task']} {message['body']}"))
    headers |= {"id": own, "root_id": own}
    properties |= {"correlation_id": own, "delivery_tag": own}
    return json.dumps(message | {"headers": headers, "properties": properties}, sort_keys=True)


def taken(message: Any) -> Any:
    """Give a message that waited once an id of its own; leave any other, and junk, as it is."""
    try:
        if waits_once(message):
            own = str(uuid.uuid4())
            message["headers"] |= {"id": own, "root_id": own}
            message["properties"] |= {"correlation_id": own, "delivery_tag": own}
    except (AttributeError, KeyError, TypeError):
        pass
    return message
