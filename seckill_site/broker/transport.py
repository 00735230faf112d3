"""Celery's way to the broker: Kombu's transport for Redis, for a broker that may be unwell.

Whatever Redis answers, a worker stays: every error closes the connection, and the next one resolves
the address again. Junk is dropped, and a key of a wrong type is moved aside. An acknowledgement
that fails still counts here: else a worker with a prefetch limit of one never asks for another.

``docs/adr/0034`` lists the private parts of Kombu that this needs.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis, virtual
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from locks.lua_script import Argument, LuaScript
from seckill_site.broker.messages import Message, packed, pause_of, taken, waits_once
from seckill_site.metrics import counter

logger = logging.getLogger(__name__)

kombu_redis: Any = redis
"""Kombu's transport; its type stubs are incomplete."""


def _script(name: str) -> LuaScript:
    return LuaScript(Path(__file__).parent / "lua" / f"{name}.lua")


_PUSH, _KEEP_UNACKED, _FIND_DUE = map(_script, ("push", "keep_unacked", "find_due"))
_GIVE_BACK, _MOVE_ASIDE = map(_script, ("give_back", "move_aside"))

_FIND_AT_ONCE = 1_000
PROBE_MS = 1_000


class StoredMessage(virtual.Message):
    """A message with the ids of its own that ``taken`` gives it."""

    def __init__(self, payload: Any, channel: Any = None, **options: Any) -> None:
        self.stored = taken(payload)
        super().__init__(self.stored, channel, **options)


class QoS(kombu_redis.QoS):  # type: ignore[misc]
    """The messages being processed. Each ends with its task, even if its acknowledgement fails.

    The broker delivers an unacknowledged message again after the visibility timeout, which the
    clock of Redis measures.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        """Keep a message in the broker while it is processed here."""
        info = message.delivery_info
        self.keep(delivery_tag, message.stored, info["exchange"], info["routing_key"])
        virtual.QoS.append(self, message, delivery_tag)

    def keep(
        self, tag: str, message: Message, exchange: str, key: str, *, later_s: float = 0
    ) -> None:
        """Keep a message among the unacknowledged, as if it were taken so many seconds later."""
        text = json.dumps([message, exchange, key])
        keys = [self.unacked_key, self.unacked_index_key]
        self.channel.run(_KEEP_UNACKED, keys, tag, text, repr(later_s))

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message, and forget it here even if the broker does not respond.

        :raises redis.RedisError: the broker will deliver the message again
        """
        try:
            super().ack(delivery_tag)
        except Exception:
            virtual.QoS.ack(self, delivery_tag)
            raise

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message or put it back, and forget it here in any case.

        :raises redis.RedisError: the broker will deliver the message again
        """
        try:
            super().reject(delivery_tag, requeue)
        except Exception:
            virtual.QoS.ack(self, delivery_tag)
            raise

    def restore_visible(self, start: int = 0, num: int | None = 10, interval: int = 10) -> None:
        """Put back the messages that were taken too long ago, or whose pause is over."""
        with self.channel.conn_or_acquire() as client:
            args = (repr(float(self.visibility_timeout)), num or _FIND_AT_ONCE)
            for tag in _FIND_DUE.run(client, keys=[self.unacked_index_key], args=args):
                self.restore_by_tag(tag, client)

    def restore_by_tag(
        self, tag: str | bytes, client: Redis | None = None, leftmost: bool = False
    ) -> None:
        """Put one message back into its queue, unless another process has; drop junk."""
        with self.channel.conn_or_acquire(client) as client:
            text, once, queues = client.hget(self.unacked_key, tag), False, []
            try:
                message, exchange, key = json.loads(text or "null")
                message["headers"] = {**message["headers"], "redelivered": True}
                text, once = packed(message), waits_once(message)
                queues = self.channel._lookup(exchange, key)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                if text is not None:
                    dropped(error)
            keys = [self.unacked_key, self.unacked_index_key, *queues]
            self.channel.run(_GIVE_BACK, keys, tag, text or "", int(once))


class Channel(kombu_redis.Channel):  # type: ignore[misc]
    """A channel that survives junk, keys of a wrong type and a broker that refuses."""

    QoS = QoS
    Message = StoredMessage
    from_transport_options = (
        *kombu_redis.Channel.from_transport_options,
        *("connection_class", "connection_class_ssl"),  # of a service (``redis/address.py``)
    )
    priority_steps = [0]  # no task of the shop has a priority, so a queue is one list

    def run(self, script: LuaScript, keys: list[str], *args: Argument) -> None:
        """Run a script that moves keys of a wrong type aside, and report them."""
        with self.conn_or_acquire() as client:
            if script.run(client, keys=keys, args=args):
                counter("ledger_junk").inc()
                logger.error("moved a key of a wrong type aside, one of %s", keys)

    def probe(self, queue: str) -> None:
        """Do what publishing a task needs, on a key that expires.

        :raises redis.RedisError: it takes no messages
        :raises TypeError: the key of the queue is of another type
        """
        with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            pipe.type(queue)
            pipe.lpush("seckill:probe:queue", "1")
            pipe.pexpire("seckill:probe:queue", PROBE_MS)
            held = bytes(pipe.execute()[0]).decode()
            if held not in ("list", "none"):
                raise TypeError(f"the key {queue} is a {held}")

    @contextmanager
    def conn_or_acquire(self, client: Redis | None = None) -> Iterator[Redis]:
        """Yield a client; after a refusal, the next one resolves the address again."""
        try:
            with super().conn_or_acquire(client) as client:
                yield client
        except ResponseError:
            self.pool.disconnect()
            raise

    def _brpop_read(self, **options: Any) -> bool:
        before = set(self.qos._delivered)
        try:
            return bool(super()._brpop_read(**options))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Redis has removed it from the queue. No order is lost: the sweep sends its task again.
            dropped(error)
            for tag in set(self.qos._delivered) - before:
                self.qos.reject(tag)
            return True

    def _new_queue(self, queue: str, **options: Any) -> None:
        self.run(_MOVE_ASIDE, [queue], "list")
        super()._new_queue(queue, **options)

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        if pause_s := pause_of(message):
            text = json.loads(packed(message))
            tag, later_s = text["properties"]["delivery_tag"], pause_s - self.visibility_timeout
            self.qos.keep(tag, text, "", queue, later_s=later_s)
        elif waits_once(message):
            self.run(_PUSH, [queue], packed(message))
        else:
            self.run(_MOVE_ASIDE, [queue], "list")
            super()._put(queue, message, **options)

    def _queue_bind(self, exchange: str, *args: Any) -> None:
        keys = [self.keyprefix_queue % exchange, self.keyprefix_binding_permanent % exchange]
        self.run(_MOVE_ASIDE, keys, "set", "set")
        super()._queue_bind(exchange, *args)

    def _connparams(self, **options: Any) -> dict[str, Any]:
        """Return where the broker is; a closed channel raises what Kombu and Celery expect.

        A task that outlives its connection acknowledges here, and Kombu closes a channel twice.

        :raises RedisConnectionError: the connection is closed
        """
        if self.connection is None or self.connection.client is None:
            raise RedisConnectionError("the connection to the broker is closed")
        parameters: dict[str, Any] = super()._connparams(**options)
        return parameters


class Transport(kombu_redis.Transport):  # type: ignore[misc]
    """A transport to which each error of Redis is one of the connection, so a worker reconnects."""

    Channel = Channel
    connection_errors = (*kombu_redis.Transport.connection_errors, RedisError)


def dropped(why: object) -> None:
    """Log and count something in a queue that is not a message of the shop."""
    counter("ledger_junk").inc()
    logger.error("dropped junk from the queue: %r", why)


def register() -> None:
    """Let Kombu use this transport for Redis."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
