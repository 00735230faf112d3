"""What a message asks of RabbitMQ, and what its errors do to a consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import NotFound, RecoverableConnectionError
from kombu import Connection
from kombu.message import Message
from pytest_django import Settings
from redis.exceptions import RedisError

from seckill_site.broker.consumer import Consumer
from seckill_site.broker.messages import LIFE_S, impatient, publish_options, task_queue

pytestmark = pytest.mark.quick

ONE = "amqp://localhost:1//"


@pytest.mark.parametrize(
    ("pause_s", "seconds"), [(0.5, 1), (1, 1), (1.0, 1), (1.2, 2), (2.0, 2), (30, 30)]
)
def test_pause_in_quorum_queues_is_of_whole_seconds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, pause_s: float, seconds: int
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", ONE)
    settings.SECKILL_QUORUM_QUEUES = True
    options = publish_options(once=True, pause_s=pause_s, queue="payments")
    queue = options["queue"]
    assert queue.name == f"payments.after-{seconds}-s"
    assert queue.queue_arguments["x-message-ttl"] == seconds * 1000
    assert queue.queue_arguments["x-dead-letter-routing-key"] == "payments"
    assert not queue.can_cache_declaration  # declared with each message
    assert not options.keys() & {"countdown", "expiration"}


def test_queue_of_tasks_ends_what_a_pause_leads_to() -> None:
    quorum, classic = (task_queue("celery", is_quorum=it) for it in (True, False))
    assert quorum.queue_arguments == {"x-queue-type": "quorum", "x-message-ttl": LIFE_S * 1000}
    assert not classic.queue_arguments


@pytest.mark.parametrize("addresses", [1, 3])
def test_each_address_is_tried_once_in_the_same_time(
    monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", ";".join([ONE] * addresses))
    options = impatient(0.3)
    assert options["max_retries"] == addresses - 1
    assert options["connect_timeout"] * addresses == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("url", "error"),
    [(ONE, RecoverableConnectionError), (ONE, NotFound), ("redis://localhost:1", RedisError)],
)
def test_junk_that_cannot_be_rejected_ends_no_consumer(
    url: str, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def reject(*_: object, **__: object) -> None:
        raise error("gone")

    channel: Any = SimpleNamespace(basic_reject=reject, no_ack_consumers=None)
    message = Message(channel=channel, delivery_tag="1", body="")
    consumer = Consumer.__new__(Consumer)
    with Connection(url) as connection:
        consumer.connection_errors = connection.connection_errors
        consumer.channel_errors = connection.channel_errors
        consumer.on_decode_error(message, ValueError("junk"))
    assert "gone" in caplog.text
