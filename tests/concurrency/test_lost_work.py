"""Accepted orders whose message or worker is lost on the way."""

from __future__ import annotations

import pytest
from django.conf import settings
from redis import Redis

from orders.models import VoucherOrder
from tests.concurrency.sales import (
    assert_sold_exactly,
    crowd_of,
    live_orders,
    make_sale,
    order_all,
    order_requests,
    wait_until_quiet,
)
from tests.support.crowd import fire
from tests.support.patience import wait_for
from tests.support.stack import Stack
from vouchers.inventory.sale_state import snapshot

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]


def lose_all_messages() -> None:
    with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
        wait_for(lambda: broker.llen("celery"), what="a message, which is sent after the answer")
        broker.flushdb()


def test_burst_without_worker_and_messages_becomes_orders(stack: Stack) -> None:
    # On a slow machine the backlog would otherwise refuse the last buyers as "behind".
    web = stack.web(workers=2, threads=4, SECKILL_BEHIND_MS="0")
    sale = make_sale(stock=100)
    requests = order_requests(sale, crowd_of(sale, count=600))

    answers = order_all(requests, url=web.url, connections=256)

    assert not VoucherOrder.objects.exists()
    assert snapshot(sale_id=sale.pk).pending == 100
    lose_all_messages()
    stack.worker("--beat", concurrency=2)
    wait_until_quiet(sale)
    assert_sold_exactly(sale, answers)


def test_control_without_sweep_lost_messages_leave_orders_pending(stack: Stack) -> None:
    """No beat runs, so nobody sends the work again; another sale's order is the clock.

    The sweep at the start of the worker leaves alone what seems to be queued still.
    """
    web = stack.web(SECKILL_KICK_MS="600000")
    sale, clock = make_sale(stock=10), make_sale(stock=10)
    fire(order_requests(sale, crowd_of(sale, count=5)), url=web.url)
    lose_all_messages()

    stack.worker(concurrency=2, SECKILL_KICK_MS="600000")
    fire(order_requests(clock, crowd_of(clock, count=1)), url=web.url)
    wait_until_quiet(clock)

    assert snapshot(sale_id=sale.pk).pending == 5
    assert not live_orders(sale)
