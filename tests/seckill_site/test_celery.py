"""The broker's transport, with Kombu's own as the control."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from django.conf import settings
from kombu import Connection
from redis import Redis
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from seckill_site.celery import app
from tests.support.proxy import FaultProxy, redis_server

OURS, KOMBUS = "redis", "kombu.transport.redis:Transport"
QUEUE = "tests"
SILENCE_S, INVISIBLE_S, PATIENCE_S = 2, 1, 10
JUNK = [b"no JSON \xff\xfe", b"{}", b"[1, 2]", b'"text"', b'{"properties": []}', b"null"]


@pytest.fixture
def line() -> Iterator[FaultProxy]:
    with FaultProxy(redis_server(settings.CELERY_BROKER_URL)) as proxy:
        yield proxy


def url_through(line: FaultProxy) -> str:
    db = parse_url(settings.CELERY_BROKER_URL).get("db", 0)
    return line.url(db, like=settings.CELERY_BROKER_URL)


@pytest.fixture
def broker() -> Iterator[Redis]:
    with Redis.from_url(settings.CELERY_BROKER_URL) as client:
        yield client


def connection(transport: str, url: str) -> Connection:
    options = {
        "socket_timeout": SILENCE_S,
        "visibility_timeout": INVISIBLE_S,
        "unacked_restore_throttle": 1,
    }
    return Connection(url, transport=transport, transport_options=options)


def consume(connection: Connection, count: int, *, at_once: int = 1) -> list[Any]:
    """Take so many messages; ``at_once`` are let out unacknowledged."""
    messages: list[Any] = []
    channel: Any = connection.default_channel
    channel.basic_qos(0, at_once, False)
    channel.queue_declare(QUEUE)
    channel.basic_consume(QUEUE, no_ack=False, callback=messages.append, consumer_tag="1")
    until = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < until:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.2)  # between two of them it looks for the invisible
    return messages


def send(body: str) -> None:
    with Connection(settings.CELERY_BROKER_URL) as sending, sending.Producer() as producer:
        producer.publish(body, routing_key=QUEUE, declare=[sending.SimpleQueue(QUEUE).queue])


def test_celery_uses_this_transport() -> None:
    with app.connection_for_read() as reading:
        assert type(reading.transport).__module__ == "seckill_site.celery"
        assert reading.transport.driver_type == "redis"


@pytest.mark.parametrize(("transport", "may_go_on"), [(OURS, True), (KOMBUS, False)])
def test_only_our_transport_survives_a_failed_acknowledgement(
    line: FaultProxy, transport: str, may_go_on: bool
) -> None:
    with connection(transport, url_through(line)) as reading:
        send("first")
        (message,) = consume(reading, 1)
        assert not message.channel.qos.can_consume()
        line.stall()
        with pytest.raises(RedisError):
            message.ack()
        assert message.channel.qos.can_consume() is may_go_on
        line.heal()


def test_unacknowledged_message_is_delivered_again(line: FaultProxy, broker: Redis) -> None:
    with connection(OURS, url_through(line)) as reading:
        send("first")
        (message,) = consume(reading, 1)
        line.refuse()
        line.cut()
        with pytest.raises(RedisError):
            message.ack()
        line.heal()
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        (again,) = consume(reading, 1)
        assert again.payload == "first"
        again.ack()
    assert not broker.exists("unacked")


@pytest.mark.parametrize(
    ("transport", "error"), [(OURS, RedisConnectionError), (KOMBUS, AttributeError)]
)
def test_only_our_transport_outlives_a_lost_broker(
    line: FaultProxy, transport: str, error: type[Exception]
) -> None:
    """As a Celery worker closes its connection while a task runs, and the task ends later."""
    reading = connection(transport, url_through(line))
    send("first")
    (message,) = consume(reading, 1, at_once=2)
    beside: Any = reading.channel()  # a worker has one for remote control
    beside.queue_declare("beside")
    beside.basic_consume("beside", no_ack=True, callback=print, consumer_tag="2")
    with suppress(TimeoutError):
        reading.drain_events(timeout=0.2)  # both wait for a message
    line.refuse()
    line.cut()
    with suppress(RedisError):
        reading.collect()
    with pytest.raises(AttributeError) if transport == KOMBUS else nullcontext():
        reading.close()
    with pytest.raises(error):
        message.ack()


@pytest.mark.parametrize("junk", JUNK)
def test_junk_in_the_queue_is_dropped_and_logged(
    broker: Redis, caplog: pytest.LogCaptureFixture, junk: bytes
) -> None:
    send("first")
    broker.rpush(QUEUE, junk)  # comes out before it
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        (message,) = consume(reading, 1)
        assert message.payload == "first"
        message.ack()
    assert "dropped junk" in caplog.text
    assert not broker.exists(QUEUE)


@pytest.mark.parametrize("junk", JUNK)
def test_control_kombu_transport_fails_on_junk(broker: Redis, junk: bytes) -> None:
    broker.rpush(QUEUE, junk)
    with (
        connection(KOMBUS, settings.CELERY_BROKER_URL) as reading,
        pytest.raises((AttributeError, KeyError, TypeError, ValueError)),
    ):
        consume(reading, 1)
