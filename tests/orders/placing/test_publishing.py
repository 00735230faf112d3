"""Publishing: one small message that waits once, a bounded wait, and a circuit breaker."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator

import pytest

from orders.placing.publishing import FULFIL_SALE, publish, publish_fulfilment
from seckill_site.redis import breaker
from tests.support.inspection import broker_client, broker_length, publishes
from tests.support.patience import MOMENT_S, running_s


@pytest.fixture
def silent_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{port}/0")
        yield


def test_message_names_sale_and_has_no_time() -> None:
    sent = publishes("sent")
    assert publish(FULFIL_SALE, sale_id=7) is True
    (text,) = broker_client().lrange("celery", 0, -1)
    message = json.loads(text)
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    assert (args, kwargs) == ([], {"sale_id": 7})
    assert message["headers"]["task"] == "orders.tasks.fulfill_sale"
    assert message["headers"]["ignore_result"] is True
    assert not {"expires", "eta"} & set(message["headers"])
    assert publishes("sent") == sent + 1


def test_broker_holds_only_the_message() -> None:
    publish_fulfilment(sale_id=7)
    keys = {key.decode() for key in broker_client().scan_iter()}
    assert keys <= {"celery", "_kombu.binding.celery"}


@pytest.mark.usefixtures("broker_refuses")
def test_refusing_broker_is_counted_and_paused() -> None:
    failed, skipped = publishes("failed"), publishes("skipped")
    began = running_s()
    assert publish(FULFIL_SALE, sale_id=7) is False
    assert [publish(FULFIL_SALE, sale_id=7) for _ in range(3)] == [False] * 3
    assert running_s() - began < MOMENT_S
    assert publishes("failed") == failed + 1
    assert publishes("skipped") == skipped + 3


@pytest.mark.usefixtures("silent_broker")
def test_silent_broker_costs_only_the_timeout() -> None:
    failed = publishes("failed")
    began = running_s()
    assert publish(FULFIL_SALE, sale_id=7) is False
    assert running_s() - began < MOMENT_S
    assert publishes("failed") == failed + 1


def test_broker_is_asked_again_after_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
        assert publish(FULFIL_SALE, sale_id=7) is False
    assert publish(FULFIL_SALE, sale_id=7) is False
    assert broker_length() == 0
    in_a_minute = time.monotonic() + 61
    monkeypatch.setattr(breaker, "monotonic", lambda: in_a_minute)
    assert publish(FULFIL_SALE, sale_id=7) is True
    assert broker_length() == 1


def test_message_waits_once_and_again_after_it_was_taken() -> None:
    for _ in range(3):
        assert publish(FULFIL_SALE, sale_id=7)
    assert broker_length() == 1
    assert publish(FULFIL_SALE, sale_id=8)
    assert broker_length() == 2
    broker_client().rpop("celery")
    assert publish(FULFIL_SALE, sale_id=7)
    assert broker_length() == 2
