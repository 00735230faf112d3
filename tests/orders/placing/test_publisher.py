"""The publisher of a web process: nobody waits for it, and it sends each sale once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from orders.placing import publisher as module
from orders.placing.publisher import Publisher
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick


class Broker:
    """A broker that takes its time, and notes what it was sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.reached = threading.Event()
        self.free = threading.Event()

    def publish(self, *, sale_id: int) -> None:
        self.reached.set()
        self.free.wait(GENEROUS_S)
        self.sent.append(sale_id)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    broker = Broker()
    monkeypatch.setattr(module, "publish_fulfilment", broker.publish)
    yield broker
    broker.free.set()


def test_request_does_not_wait_and_drain_does(broker: Broker) -> None:
    publisher = Publisher()
    publisher.request(sale_id=1)
    assert broker.reached.wait(GENEROUS_S)
    assert not publisher.drain(longest_s=0.01)
    broker.free.set()
    assert publisher.drain(longest_s=GENEROUS_S)
    assert broker.sent == [1]


def test_sales_asked_for_meanwhile_are_sent_once_each(broker: Broker) -> None:
    publisher = Publisher()
    publisher.request(sale_id=1)
    assert broker.reached.wait(GENEROUS_S)
    for sale_id in (2, 3, 2, 1, 3):
        publisher.request(sale_id=sale_id)
    broker.free.set()
    assert publisher.drain(longest_s=GENEROUS_S)
    assert broker.sent == [1, 2, 3, 1]


def test_publisher_that_was_never_asked_is_drained() -> None:
    assert Publisher().drain(longest_s=0)
