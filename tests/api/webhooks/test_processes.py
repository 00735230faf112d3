"""Webhooks by real workers: every queue is taken, deaths lose nothing, orders do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.models import WebhookDelivery
from orders.models import VoucherOrder
from orders.placing.publishing import publish_fulfilment
from tests.support.api import Receiver, make_endpoint, receiver
from tests.support.orders import make_buyer, make_sale, reserved
from tests.support.patience import wait_for
from tests.support.payments import make_unpaid_order, pay
from tests.support.stack import Stack, beat_every

pytestmark = [pytest.mark.slow, pytest.mark.concurrency]

ENVIRON: dict[str, Any] = {
    **beat_every(send_webhooks=0.3),
    "SECKILL_WEBHOOK_HTTP": "true",
    "SECKILL_WEBHOOK_NETWORKS": "127.0.0.0/8,::1/128",
}


@pytest.fixture
def it() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def is_delivered() -> bool:
    return WebhookDelivery.objects.filter(state=WebhookDelivery.State.DELIVERED).exists()


def test_killed_worker_sends_the_same_message_again(stack: Stack, it: Receiver) -> None:
    make_endpoint(it.url)
    pay(make_unpaid_order(make_sale()))
    dying = stack.worker("--beat", FAILPOINT="webhook.sent", **ENVIRON)
    wait_for(lambda: it.got, what="first message")
    assert not is_delivered()

    dying.kill()
    stack.worker("--beat", **ENVIRON)  # it takes from every queue

    wait_for(is_delivered, what="delivery")
    assert len(it.got) >= 2
    assert len(set(it.ids)) == 1
    assert len({message.body for message in it.got}) == 1


def test_hanging_endpoint_delays_no_order(stack: Stack, it: Receiver) -> None:
    """One process for orders and one for other people's servers, as ``script/server`` has them.

    At the failpoint the second one hangs for longer than an endpoint can hold it.
    """
    it.respond = it.hang
    make_endpoint(it.url)
    sale = make_sale(stock=40)
    pay(make_unpaid_order(sale))
    with stack.together():
        stack.worker("--beat", "--queues", "celery", concurrency=1, **ENVIRON)
        outside = ["--exclude-queues", "celery", "--hostname", "outside@%h"]
        stack.worker(*outside, concurrency=1, FAILPOINT="webhook.sent", **ENVIRON)
    wait_for(lambda: it.got, what="first message")

    (token,) = reserved(sale, [make_buyer()])
    publish_fulfilment(sale_id=sale.pk)
    wait_for(VoucherOrder.objects.filter(pk=token.order_id).exists, what="the order's row")
