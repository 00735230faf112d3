"""Crowds at a running shop: exact counts, double clicks, and edits of the sale under load."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

import pytest
from django.utils import timezone

from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import (
    DETAILS,
    TOLD_NOTHING,
    Crowd,
    accepted_ids,
    assert_sold_exactly,
    assert_the_sum_is_right,
    crowd_at,
    crowd_of,
    live_orders,
    make_sale,
    more_tokens,
    order_all,
    order_requests,
    sale_and_crowd,
    wait_until_quiet,
)
from tests.fixtures.processes import on_both_ways
from tests.support.crowd import Answer, fire
from tests.support.patience import wait_for
from tests.support.sales import change_stock
from tests.support.stack import Shop
from vouchers.catalogue import sales
from vouchers.catalogue.prices import once_at_rest
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import BACKOFF_MS
from vouchers.inventory.sale_state import BelowTaken, snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]


@pytest.fixture(scope="module")
def db(kept_databases: None) -> None:
    """The module's database, without a transaction around each test."""


CLICKS = 200

# --- One burst, many clicks -----------------------------------------------------------------------


@pytest.mark.slow
def test_burst_sells_exactly_the_stock(shared_shop: Shop) -> None:
    sale = make_sale(stock=100)
    requests = order_requests(sale, crowd_of(sale, count=1_000))

    answers = order_all(requests, url=shared_shop.url, connections=256)

    wait_until_quiet(sale)
    assert_sold_exactly(sale, answers)


def user_of(token: str) -> int:
    return int(token.split("-")[1])


@pytest.mark.slow
def test_repeated_clicks_on_one_page_make_one_order(shared_shop: Shop) -> None:
    sale, (token,) = sale_and_crowd(stock=10, count=1)

    answers = order_all(
        order_requests(sale, [token] * CLICKS), url=shared_shop.url, connections=CLICKS
    )

    assert {(answer.status, answer.body["order_id"]) for answer in answers} == {
        (202, token.split("-")[0])
    }
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=1)


@on_both_ways
def test_many_tabs_of_one_buyer_get_one_unit(shared_shop: Shop) -> None:
    sale, (token,) = sale_and_crowd(stock=10, count=1)
    tabs = more_tokens(sale, user_id=user_of(token), count=CLICKS)

    answers = order_all(order_requests(sale, tabs), url=shared_shop.url, connections=CLICKS)

    (won,) = accepted_ids(answers)
    refused = [answer for answer in answers if answer.status != 202]
    assert {(a.status, a.body["code"], a.body["order_id"]) for a in refused} == {
        (409, "already_ordered", str(won))
    }
    wait_until_quiet(sale)
    assert [order.pk for order in live_orders(sale)] == [won]
    assert_the_sum_is_right(sale, ordered=1)


def test_limit_of_three_gives_exactly_three_units_each(shared_shop: Shop) -> None:
    sale = make_sale(stock=1_000, limit=3)
    buyers = [user_of(token) for token in crowd_of(sale, count=20)]
    tabs = [tab for user in buyers for tab in more_tokens(sale, user_id=user, count=10)]

    order_all(order_requests(sale, tabs), url=shared_shop.url, connections=CLICKS)

    wait_until_quiet(sale)
    assert Counter(order.user_id for order in live_orders(sale)) == dict.fromkeys(buyers, 3)
    assert_the_sum_is_right(sale, ordered=60)


# --- A sale that changes under load --------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_accepted_before_the_start(shared_shop: Shop) -> None:
    sale = make_sale(stock=1_000, begins_in_s=300)
    tokens = crowd_of(sale, count=300)
    early = order_all(order_requests(sale, tokens), url=shared_shop.url, connections=64)
    assert {(answer.status, answer.body["code"]) for answer in early} == {(409, "not_started")}

    begins_at = timezone.now().replace(microsecond=0) + dt.timedelta(seconds=2)
    sale = edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), begins_at=begins_at))
    # The same tokens again and again until the sale has started for all of them.
    accepted: set[int] = set()
    while len(accepted) < len(tokens):
        accepted |= accepted_ids(
            fire(order_requests(sale, tokens), url=shared_shop.url, connections=64)
        )

    wait_until_quiet(sale)
    orders = live_orders(sale)
    assert min(order.accepted_at for order in orders) >= begins_at
    assert_the_sum_is_right(sale, ordered=300)


@pytest.mark.slow
def test_nothing_is_accepted_after_the_end(shared_shop: Shop) -> None:
    sale = make_sale(stock=50_000)
    accepted = accepted_ids(
        order_all(
            order_requests(sale, crowd_of(sale, count=50)), url=shared_shop.url, connections=8
        )
    )
    assert len(accepted) == 50
    ends_at = timezone.now().replace(microsecond=0) + dt.timedelta(seconds=2)
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), ends_at=ends_at))
    late: list[Answer] = []
    while not late:  # wave after wave of new buyers, until one wave meets the end
        answers = order_all(
            order_requests(sale, crowd_of(sale, count=50)), url=shared_shop.url, connections=8
        )
        accepted |= accepted_ids(answers)
        late = [answer for answer in answers if answer.status != 202]

    assert {(answer.status, answer.body["code"]) for answer in late} == {(409, "ended")}
    wait_until_quiet(sale)
    orders = live_orders(sale)
    assert {order.pk for order in orders} == accepted
    assert max(order.accepted_at for order in orders) < ends_at
    assert_the_sum_is_right(sale, ordered=len(accepted))


@pytest.mark.slow
def test_stock_edits_under_load_sell_exactly_the_last_stock(shared_shop: Shop) -> None:
    sale = make_sale(stock=50)
    with crowd_at(sale, tokens=crowd_of(sale, count=1_500), url=shared_shop.url) as crowd:
        for stock in (80, 60, 200, 120, 90, 150):
            with suppress(BelowTaken):
                change_stock(sale_id=sale.pk, stock=stock)
    sale.refresh_from_db()

    # Refused buyers retry until the last stock is sold. A retry always asks the ledger; first
    # attempts could be refused from a process's memory of an earlier "sold out".
    order_all(order_requests(sale, crowd.tokens, attempt=2), url=shared_shop.url, connections=64)
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=sale.stock)


@pytest.mark.slow
def test_pause_under_load_loses_no_accepted_order(shared_shop: Shop) -> None:
    sale = make_sale(stock=2_000)
    with crowd_at(sale, tokens=crowd_of(sale, count=1_000), url=shared_shop.url) as crowd:
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), paused=True))
        taken = snapshot(sale_id=sale.pk).taken
    assert snapshot(sale_id=sale.pk).taken == taken
    # All may have been quicker than the pause; or Redis late, on a machine that stood still.
    told = Counter(a.body["code"] if a.status == 409 else a.status for a in crowd.answers)
    unknown = sum(told[it] for it in TOLD_NOTHING)
    assert told.keys() <= {202, "paused", *TOLD_NOTHING}
    assert told[202] <= taken <= told[202] + unknown

    sale.refresh_from_db()
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), paused=False))
    order_all(crowd.requests, url=shared_shop.url, connections=64)
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_price_edits_under_load_charge_nobody_without_a_word(
    shared_shop: Shop, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each order has the price that its token names, though the price rises among them."""
    if not guarded:
        monkeypatch.setattr(sales, "close_to_reprice", lambda **_: None)
    sale = make_sale(stock=5_000)
    told: dict[int, int] = {}
    for cents in (120, 140, 160):
        tokens = crowd_of(sale, count=400)
        told |= {int(token.partition("-")[0]): cents - 20 for token in tokens}
        with (
            crowd_at(sale, tokens=tokens, url=shared_shop.url) as crowd,
            nullcontext() if guarded else held_back(sale),  # or the worker might be too quick
        ):
            wait_for_orders_on_their_way(sale, crowd)
            change_price(sale, cents)
        refused = {it.body["code"] for it in crowd.answers if it.status not in TOLD_NOTHING | {202}}
        assert refused <= {"paused", "price_changed"}
        sale = SeckillVoucher.objects.get(pk=sale.pk)

    wait_until_quiet(sale)
    orders = live_orders(sale)
    wrong = [order.pk for order in orders if order.price_cents != told[order.pk]]
    assert orders
    assert bool(wrong) is not guarded
    assert_the_sum_is_right(sale, ordered=len(orders))


@contextmanager
def held_back(sale: SeckillVoucher) -> Iterator[None]:
    """Let no worker write a sale's orders meanwhile; one that was stopped might hold the row."""
    backoff = LedgerKeys(sale.pk).backoff
    ledger_connection().set(backoff, 1, px=BACKOFF_MS[1])
    try:
        yield
    finally:
        ledger_connection().delete(backoff)


def wait_for_orders_on_their_way(sale: SeckillVoucher, crowd: Crowd) -> None:
    """Wait until some wait for the worker; if this process was late, they may all be rows."""
    wait_for(
        lambda: snapshot(sale_id=sale.pk).pending > 20 or not crowd.is_alive(),
        what="orders on their way",
    )


def change_price(sale: SeckillVoucher, cents: int) -> None:
    details, terms = replace(DETAILS, price_cents=cents), terms_of(sale)
    once_at_rest(lambda: edit_sale(sale_id=sale.pk, terms=terms, details=details))
