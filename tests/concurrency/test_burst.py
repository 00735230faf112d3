"""A whole sale over HTTP: a crowd, real processes, exact counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from orders.models import VoucherOrder
from tests.concurrency.sales import (
    accepted_ids,
    assert_the_sum_is_right,
    crowd_of,
    live_orders,
    make_sale,
    order_requests,
    wait_until_quiet,
)
from tests.support.crowd import Answer, fire
from tests.support.stack import Stack
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 3_000
STOCK = 100
CONNECTIONS = 256


def assert_sold_exactly(sale: SeckillVoucher, answers: Sequence[Answer]) -> None:
    accepted = accepted_ids(answers)
    assert len(accepted) == STOCK
    refusals = Counter(
        (answer.status, answer.body["code"]) for answer in answers if answer.status != 202
    )
    assert refusals == {(409, "sold_out"): BUYERS - STOCK}
    orders = live_orders(sale)
    assert {order.pk for order in orders} == accepted
    assert len({order.user_id for order in orders}) == STOCK
    assert_the_sum_is_right(sale, ordered=STOCK)


def test_burst_sells_exactly_the_stock(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    stack.beat()
    sale = make_sale(stock=STOCK)
    requests = order_requests(sale, crowd_of(sale, count=BUYERS))

    answers = fire(requests, url=web.url, connections=CONNECTIONS)

    wait_until_quiet(sale)
    assert_sold_exactly(sale, answers)


def test_burst_without_worker_becomes_orders_later(stack: Stack) -> None:
    # On a slow machine the backlog would otherwise refuse the last buyers as "behind".
    web = stack.web(workers=2, threads=4, SECKILL_BEHIND_MS="0")
    sale = make_sale(stock=STOCK)
    requests = order_requests(sale, crowd_of(sale, count=BUYERS))

    answers = fire(requests, url=web.url, connections=CONNECTIONS)

    assert not VoucherOrder.objects.exists()
    assert snapshot(sale_id=sale.pk).pending == STOCK
    stack.worker(concurrency=2)
    stack.beat()
    wait_until_quiet(sale)
    assert_sold_exactly(sale, answers)
