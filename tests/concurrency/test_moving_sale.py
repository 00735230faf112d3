"""A sale that changes under load: its begin is crossed, its stock and its pause are edited."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from django.db import connection

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
from tests.support.sales import change_stock
from tests.support.stack import Stack
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.sale_state import BelowTaken, snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]


class Crowd(threading.Thread):
    """A crowd that goes on while the test edits the sale."""

    def __init__(self, sale: SeckillVoucher, tokens: list[str], url: str) -> None:
        super().__init__()
        self.requests = order_requests(sale, tokens)
        self.url = url
        self.answers: list[Answer] = []

    def run(self) -> None:
        self.answers = fire(self.requests, url=self.url, connections=64)


@contextmanager
def crowd_at(sale: SeckillVoucher, *, tokens: list[str], url: str) -> Iterator[Crowd]:
    crowd = Crowd(sale, tokens, url)
    crowd.start()
    try:
        yield crowd
    finally:
        crowd.join()


def test_nothing_is_accepted_before_the_begin_however_many_ask(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=1_000, begins_in_s=2)
    tokens = crowd_of(sale, count=300)
    early = fire(order_requests(sale, tokens), url=web.url, connections=64)
    assert {(answer.status, answer.body["code"]) for answer in early} == {(409, "not_started")}

    # The same tokens again and again until the sale has begun for all of them.
    accepted: set[int] = set()
    while len(accepted) < len(tokens):
        accepted |= accepted_ids(fire(order_requests(sale, tokens), url=web.url, connections=64))

    wait_until_quiet(sale)
    orders = live_orders(sale)
    assert min(order.accepted_at for order in orders) >= sale.begins_at
    assert_the_sum_is_right(sale, ordered=300)


def test_nothing_is_accepted_at_or_after_the_end(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=50_000, ends_in_s=4)
    accepted: set[int] = set()
    late: list[Answer] = []
    while not late:  # wave after wave of new buyers, until one wave meets the end
        answers = fire(order_requests(sale, crowd_of(sale, count=50)), url=web.url, connections=8)
        accepted |= accepted_ids(answers)
        late = [answer for answer in answers if answer.status != 202]

    assert {(answer.status, answer.body["code"]) for answer in late} == {(409, "ended")}
    wait_until_quiet(sale)
    orders = live_orders(sale)
    assert {order.pk for order in orders} == accepted
    assert max(order.accepted_at for order in orders) < sale.ends_at
    assert_the_sum_is_right(sale, ordered=len(accepted))


def test_stock_edited_up_and_down_under_load_sells_exactly_what_was_offered_last(
    stack: Stack,
) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    stack.beat()
    sale = make_sale(stock=50)
    with crowd_at(sale, tokens=crowd_of(sale, count=1_500), url=web.url) as crowd:
        for stock in (80, 60, 200, 120, 90, 150):
            with suppress(BelowTaken):
                change_stock(sale_id=sale.pk, stock=stock)
    sale.refresh_from_db()

    # Whoever was refused asks again, so that the last offer is sold to the end.
    fire(crowd.requests, url=web.url, connections=64)
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=sale.stock)


def test_a_pause_under_load_stops_the_sale_and_forgets_nobody(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    stack.beat()
    sale = make_sale(stock=2_000)
    with crowd_at(sale, tokens=crowd_of(sale, count=1_000), url=web.url) as crowd:
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), paused=True))
        taken = snapshot(sale_id=sale.pk).taken
    assert snapshot(sale_id=sale.pk).taken == taken
    assert {a.body["code"] for a in crowd.answers if a.status != 202} == {"paused"}
    assert len(accepted_ids(crowd.answers)) == taken

    sale.refresh_from_db()
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), paused=False))
    fire(crowd.requests, url=web.url, connections=64)
    wait_until_quiet(sale)
    connection.close()
    assert_the_sum_is_right(sale, ordered=1_000)
