"""What this shop asks of a message beyond Celery: to wait only once, and to wait for a while.

Note [No clock but Redis'] No message expires, and none names a time: the sender's wall clock and
the worker's may differ. A message with ``once`` is not queued while its equal waits, so a queue
without workers does not grow. One with a pause lies among the unacknowledged until Redis, by its
own clock, has let the pause pass.
"""

import json
import uuid
from typing import Any

ONCE, PAUSE_S = "once", "pause_s"

_HEADERS = ("lang", "task", "argsrepr", "kwargsrepr", "ignore_result", ONCE)
"""Not what the sender adds of its own, as a task's time limits where it has imported the task."""

_PROPERTIES = ("delivery_mode", "delivery_info", "priority", "body_encoding")

Message = dict[str, Any]
"""A message as the broker stores it."""


def publish_options(*, once: bool = False, pause_s: float = 0) -> dict[str, Any]:
    """Return options for ``send_task``: wait at most once, and only after a pause."""
    return {"headers": {ONCE: once} | ({PAUSE_S: pause_s} if pause_s else {})}


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
