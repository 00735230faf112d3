"""The broker's transport, with Kombu's own as the control."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from django.conf import settings
from kombu import Connection
from kombu.transport import redis as redis_transport
from redis import Redis
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from seckill_site.celery import app
from tests.support.patience import GENEROUS_S
from tests.support.proxy import FaultProxy, redis_server

OURS, KOMBUS = "redis", "kombu.transport.redis:Transport"
QUEUE = "tests"
SILENCE_S, INVISIBLE_S, PATIENCE_S = 2, 1, GENEROUS_S
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
        assert type(reading.transport).__module__ == "seckill_site.broker.transport"
        assert reading.transport.driver_type == "redis"


@pytest.mark.slow
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


# --- Keys of a wrong type -------------------------------------------------------------------------


@pytest.mark.parametrize("key", [QUEUE, "unacked", "unacked_index", "_kombu.binding.tests"])
def test_key_of_a_wrong_type_is_moved_aside(
    broker: Redis, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    broker.delete(key)
    broker.set(key, "set by hand")
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        send("first")
        (message,) = consume(reading, 1)
        assert message.payload == "first"
        message.ack()
    assert broker.get(f"{key}:aside") == b"set by hand"
    assert 0 < broker.ttl(f"{key}:aside") <= 7 * 24 * 3_600
    assert "moved a key of a wrong type aside" in caplog.text


def test_queue_that_changed_its_type_takes_every_message(broker: Redis) -> None:
    with Connection(settings.CELERY_BROKER_URL) as sending, sending.Producer() as producer:
        producer.publish("first", routing_key=QUEUE, declare=[sending.SimpleQueue(QUEUE).queue])
        broker.set(QUEUE, "set by hand")
        producer.publish("second", routing_key=QUEUE)
    assert broker.llen(QUEUE) == 1


def test_queue_that_changes_its_type_while_it_is_read_ends_the_connection(broker: Redis) -> None:
    """The worker makes another one then, which moves the key aside."""
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        assert consume(reading, 0) == []
        with suppress(TimeoutError):
            reading.drain_events(timeout=0.2)
        broker.set(QUEUE, "set by hand")
        with pytest.raises(reading.connection_errors, match="WRONGTYPE"):
            reading.drain_events(timeout=PATIENCE_S)
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        send("first")
        (message,) = consume(reading, 1)
        message.ack()
    assert broker.get(f"{QUEUE}:aside") == b"set by hand"


def test_control_kombus_transport_fails_on_a_queue_of_a_wrong_type(broker: Redis) -> None:
    broker.set(QUEUE, "set by hand")
    with (
        connection(KOMBUS, settings.CELERY_BROKER_URL) as reading,
        pytest.raises(ResponseError, match="WRONGTYPE"),
    ):
        consume(reading, 1)


# --- Refusals -------------------------------------------------------------------------------------


def test_every_refusal_counts_as_a_lost_connection() -> None:
    with app.connection_for_read() as reading:
        assert issubclass(ResponseError, reading.connection_errors)
        assert issubclass(ResponseError, reading.recoverable_connection_errors)


def test_refusal_closes_the_connection(broker: Redis) -> None:
    with connection(OURS, settings.CELERY_BROKER_URL) as sending:
        channel: Any = sending.default_channel
        with channel.conn_or_acquire() as client:
            before = client.client_id()
        with pytest.raises(ResponseError), channel.conn_or_acquire() as client:
            client.execute_command("LPUSH")
        with channel.conn_or_acquire() as client:
            assert client.client_id() != before


# --- Messages that wait ---------------------------------------------------------------------------


def task(**headers: object) -> dict[str, Any]:
    return {"task": "a", "id": "1", "root_id": "1"} | headers


def send_task(body: str, **headers: object) -> None:
    with Connection(settings.CELERY_BROKER_URL) as sending, sending.Producer() as producer:
        producer.publish(body, routing_key=QUEUE, headers=task(**headers))


def test_message_waits_once_until_it_is_taken(broker: Redis) -> None:
    for body in ("a", "b", "a", "a"):
        senders_own = {"origin": str(time.monotonic_ns()), "timelimit": [time.monotonic_ns(), 1]}
        send_task(body, once=True, **senders_own)
    assert broker.llen(QUEUE) == 2
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        first, second = consume(reading, 2, at_once=2)
        assert (first.payload, second.payload) == ("a", "b")
        assert first.delivery_tag != second.delivery_tag
        send_task("a", once=True)
        assert broker.llen(QUEUE) == 1
        (again,) = consume(reading, 1, at_once=3)
        assert first.delivery_tag != again.delivery_tag
        for message in (first, second, again):
            message.ack()
    assert not broker.exists("unacked")


def test_control_messages_without_once_wait_beside_each_other(broker: Redis) -> None:
    for _ in range(3):
        send_task("a")
    assert broker.llen(QUEUE) == 3


def test_message_that_comes_back_is_not_queued_beside_its_equal(broker: Redis) -> None:
    send_task("a", once=True)
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        (message,) = consume(reading, 1)
        send_task("a", once=True)
        message.channel.qos.restore_by_tag(message.delivery_tag)
        assert broker.llen(QUEUE) == 1
        assert not broker.exists("unacked")


@pytest.mark.slow
def test_pause_is_measured_by_the_clock_of_redis(
    broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_transport, "time", lambda: 0.0)  # what Kombu's own transport asks
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        began = time.monotonic()
        with reading.Producer() as producer:
            producer.publish("later", routing_key=QUEUE, headers=task(pause_s=2))
        assert not broker.exists(QUEUE)
        (message,) = consume(reading, 1)
        assert message.payload == "later"
        assert time.monotonic() - began >= 2
        message.ack()


@pytest.mark.parametrize("junk", [*JUNK, b'[{"headers": {}}, "", "tests"]'])
def test_junk_among_the_unacknowledged_is_dropped(broker: Redis, junk: bytes) -> None:
    broker.hset("unacked", "junk", junk)
    broker.zadd("unacked_index", {"junk": 1})
    with connection(OURS, settings.CELERY_BROKER_URL) as reading:
        send("first")
        (message,) = consume(reading, 1)
        message.channel.qos.restore_visible()
        assert not broker.hexists("unacked", "junk")
        assert not broker.zscore("unacked_index", "junk")
        message.ack()
