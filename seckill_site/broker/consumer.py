"""The worker's consumer: it drops messages that are not tasks, and reconnects quickly."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.worker import consumer

from seckill_site.broker.messages import is_newer
from seckill_site.broker.transport import dropped

logger = logging.getLogger(__name__)

celery_consumer: Any = consumer.Consumer
"""Its type stubs are incomplete."""

LONGEST_PAUSE_S = 2
"""The longest pause between two attempts to reach the broker; Celery's own grow to 30 s."""


GIVE_BACK_S = 1.0
"""For how long a message of a newer release is kept before it goes back to the queue."""


class Consumer(celery_consumer):  # type: ignore[misc]
    """Celery's consumer; no message can stop it from taking the next one."""

    class Blueprint(celery_consumer.Blueprint):  # type: ignore[misc]
        """The steps of a start, without the one that declares Celery's queues for pauses.

        It waits for each node of RabbitMQ that is gone. The shop has its own (``pause_queue``).
        """

        default_steps = [
            it for it in celery_consumer.Blueprint.default_steps if "DelayedDelivery" not in it
        ]

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        """Return the handler of messages; a message that is not a task is rejected."""
        handle = super().create_task_handler(*args, **options)

        def on_message(message: Any) -> None:
            try:
                check_task(message)
            except Exception as error:  # whatever is wrong with it
                self.on_decode_error(message, error)
            else:
                if is_newer(message.headers):
                    give_back = (logger, self._broker_errors, True)
                    self.timer.call_after(GIVE_BACK_S, message.reject_log_error, give_back)
                else:
                    handle(message)

        return on_message

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Reject a message that cannot be unpacked, or is not a task."""
        dropped(exc)
        message.reject_log_error(logger, self._broker_errors)

    @property
    def _broker_errors(self) -> tuple[type[Exception], ...]:
        return (*self.connection_errors, *self.channel_errors)

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, with short pauses between attempts."""
        conn.ensure_connection = partial(conn.ensure_connection, interval_max=LONGEST_PAUSE_S)
        return super().ensure_connected(conn)


def check_task(message: Any) -> None:
    """Check that a message asks for a task, in the form that a child process can read.

    :raises Exception: it does not
    """
    if not all(isinstance(message.headers[name], str) for name in ("id", "task")):
        raise TypeError(f"not a task: {message.headers}")
    if message.content_type != "application/json":
        raise TypeError(f"not JSON: {message.content_type}")
    args, kwargs, embedded = message.decode()
    kinds = (type(args), type(kwargs), type(embedded))
    if kinds not in ((list, dict, dict), (list, dict, type(None))):
        raise TypeError(f"not the arguments of a task: {kinds}")
