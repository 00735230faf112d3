"""One buyer, many requests at once: double clicks, several tabs, a limit above one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.concurrency.sales import (
    accepted_ids,
    assert_the_sum_is_right,
    crowd_of,
    live_orders,
    make_sale,
    more_tokens,
    order_requests,
    wait_until_quiet,
)
from tests.support.crowd import fire
from tests.support.stack import Stack

pytestmark = [pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

CLICKS = 200


def user_of(token: str) -> int:
    return int(token.split("-")[1])


def test_repeated_clicks_on_one_page_make_one_order(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=10)
    (token,) = crowd_of(sale, count=1)

    answers = fire(order_requests(sale, [token] * CLICKS), url=web.url, connections=CLICKS)

    assert {(answer.status, answer.body["order_id"]) for answer in answers} == {
        (202, token.split("-")[0])
    }
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=1)


def test_many_tabs_of_one_buyer_get_one_unit(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=10)
    (token,) = crowd_of(sale, count=1)
    tabs = more_tokens(sale, user_id=user_of(token), count=CLICKS)

    answers = fire(order_requests(sale, tabs), url=web.url, connections=CLICKS)

    (won,) = accepted_ids(answers)
    refused = [answer for answer in answers if answer.status != 202]
    assert {(a.status, a.body["code"], a.body["order_id"]) for a in refused} == {
        (409, "already_ordered", str(won))
    }
    wait_until_quiet(sale)
    assert [order.pk for order in live_orders(sale)] == [won]
    assert_the_sum_is_right(sale, ordered=1)


def test_limit_of_three_gives_exactly_three_units_each(stack: Stack) -> None:
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    sale = make_sale(stock=1_000, limit=3)
    buyers = [user_of(token) for token in crowd_of(sale, count=20)]
    tabs = [tab for user in buyers for tab in more_tokens(sale, user_id=user, count=10)]

    fire(order_requests(sale, tabs), url=web.url, connections=CLICKS)

    wait_until_quiet(sale)
    assert Counter(order.user_id for order in live_orders(sale)) == dict.fromkeys(buyers, 3)
    assert_the_sum_is_right(sale, ordered=60)
