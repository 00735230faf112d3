"""A sale that changes under load: it starts and ends, and its stock and pause are edited."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from django.db import connection
from django.utils import timezone

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
    """A crowd that keeps ordering while the test edits the sale."""

    def __init__(self, sale: SeckillVoucher, tokens: list[str], url: str) -> None:
        super().__init__()
        self.tokens = tokens
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


def test_nothing_is_accepted_before_the_start(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=1_000, begins_in_s=300)
    tokens = crowd_of(sale, count=300)
    early = fire(order_requests(sale, tokens), url=web.url, connections=64)
    assert {(answer.status, answer.body["code"]) for answer in early} == {(409, "not_started")}

    begins_at = timezone.now().replace(microsecond=0) + dt.timedelta(seconds=2)
    sale = edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), begins_at=begins_at))
    # The same tokens again and again until the sale has started for all of them.
    accepted: set[int] = set()
    while len(accepted) < len(tokens):
        accepted |= accepted_ids(fire(order_requests(sale, tokens), url=web.url, connections=64))

    wait_until_quiet(sale)
    orders = live_orders(sale)
    assert min(order.accepted_at for order in orders) >= begins_at
    assert_the_sum_is_right(sale, ordered=300)


def test_nothing_is_accepted_after_the_end(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=50_000)
    accepted = accepted_ids(
        fire(order_requests(sale, crowd_of(sale, count=50)), url=web.url, connections=8)
    )
    assert len(accepted) == 50
    ends_at = timezone.now().replace(microsecond=0) + dt.timedelta(seconds=2)
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), ends_at=ends_at))
    late: list[Answer] = []
    while not late:  # wave after wave of new buyers, until one wave meets the end
        answers = fire(order_requests(sale, crowd_of(sale, count=50)), url=web.url, connections=8)
        accepted |= accepted_ids(answers)
        late = [answer for answer in answers if answer.status != 202]

    assert {(answer.status, answer.body["code"]) for answer in late} == {(409, "ended")}
    wait_until_quiet(sale)
    orders = live_orders(sale)
    assert {order.pk for order in orders} == accepted
    assert max(order.accepted_at for order in orders) < ends_at
    assert_the_sum_is_right(sale, ordered=len(accepted))


def test_stock_edits_under_load_sell_exactly_the_last_stock(
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

    # Refused buyers retry until the last stock is sold. A retry always asks the ledger; first
    # attempts could be refused from a process's memory of an earlier "sold out".
    fire(order_requests(sale, crowd.tokens, attempt=2), url=web.url, connections=64)
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=sale.stock)


def test_pause_under_load_loses_no_accepted_order(stack: Stack) -> None:
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
