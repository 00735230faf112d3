"""The front half: one Redis command a request, one task a burst, and the same answer every time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings
from redis import Redis

from orders.placing.service import finish_order, place_order, read_order_token
from orders.placing.tokens import PurchaseToken, issue_tokens
from tests.support.draws import make_draw
from tests.support.inspection import (
    broker_length,
    empty_broker,
    ledger_contents,
    pending_ids,
    publishes,
    redis_commands,
)
from tests.support.orders import (
    at_once,
    make_buyer,
    make_buyers,
    make_sale,
    token_for,
    tokens_for,
)
from tests.support.patience import MOMENT_S, running_s
from vouchers.inventory.entering import OneEntryOnly
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.purchases import is_in_block
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.sale_state import snapshot

pytestmark = pytest.mark.django_db


def place(token: PurchaseToken) -> PurchaseToken:
    now_ms = time.time_ns() // 1_000_000
    read = read_order_token(token.sign(), sale_id=token.sale_id, now_ms=now_ms)
    return place_order(read, finish=finish_order)


def post(client: Client, token: PurchaseToken, accept: str = "application/json") -> Any:
    return client.post(
        f"/vouchers/{token.sale_id}/orders/",
        {"token": token.sign()},
        content_type="application/json",
        headers={"Accept": accept},
    )


@pytest.fixture
def warm(client: Client) -> None:
    """Connections are open and scripts known to Redis, as in a process that has served before."""
    assert post(client, token_for(make_sale(), make_buyer())).status_code == 202
    empty_broker()


# --- Several units -------------------------------------------------------------------------------


@pytest.mark.parametrize(("all_or_none", "offset"), [(False, 1), (True, 33)])
def test_press_for_several_takes_ids_of_the_tokens_block(all_or_none: bool, offset: int) -> None:
    sale = make_sale(stock=9, limit=5)
    token = token_for(sale, make_buyer())

    place_order(token, finish=finish_order, quantity=3, all_or_none=all_or_none)

    first = token.order_id
    assert pending_ids(sale) == [first, first + offset, first + offset + 1]
    assert broker_length() == 1
    empty_broker()


def test_only_tokens_of_sales_with_a_higher_limit_have_blocks() -> None:
    single, several = make_sale(limit=1), make_sale(limit=2)
    buyer = make_buyer()
    blocks = [is_in_block(token_for(sale, buyer).order_id) for sale in (single, several)]
    assert blocks == [False, True]


def test_draw_takes_no_quantity() -> None:
    sale = make_draw()
    token = token_for(sale, make_buyer())
    before = ledger_contents()

    with pytest.raises(OneEntryOnly):
        place_order(token, finish=finish_order, quantity=2)

    assert ledger_contents() == before


# --- What a request costs ------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_burst_of_fifty_publishes_one_task(client: Client) -> None:
    sale, sent = make_sale(stock=50), publishes("sent")
    tokens = tokens_for(sale, make_buyers(50))
    with redis_commands() as commands:
        assert {post(client, token).status_code for token in tokens} == {202}
    assert broker_length() == 1
    assert publishes("sent") == sent + 1
    assert len(commands.ledger) == 50
    assert commands.cache == []
    assert len(pending_ids(sale)) == 50


def test_unreplicated_order_is_published_all_the_same(client: Client, settings: Settings) -> None:
    settings.SECKILL_LEDGER_REPLICAS, settings.SECKILL_LEDGER_REPLICAS_MS = 1, 1  # no replica
    sale = make_sale()
    tokens = tokens_for(sale, make_buyers(2))
    assert {post(client, token).status_code for token in tokens} == {503}
    assert broker_length() == 1
    assert len(pending_ids(sale)) == 2


# --- The same answer -----------------------------------------------------------------------------


def test_repeated_token_reserves_once(client: Client) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    first = post(client, token)
    before = ledger_contents()
    again = [post(client, token) for _ in range(3)]
    assert {(r.status_code, r.content) for r in again} == {(202, first.content)}
    assert ledger_contents() == before
    assert broker_length() == 1


def test_same_token_from_many_threads_reserves_once() -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    assert at_once(*[lambda: place(token)] * 8) == [token] * 8
    assert pending_ids(sale) == [token.order_id]
    assert broker_length() == 1


# --- A ledger that is not there ------------------------------------------------------------------


def test_first_request_loads_the_sale(client: Client, ledger: Redis) -> None:
    sale = make_sale(stock=7, loaded=False)
    tokens = tokens_for(sale, make_buyers(2))
    assert not ledger.exists(LedgerKeys(sale.pk).sale)
    assert post(client, tokens[0]).status_code == 202
    assert snapshot(sale_id=sale.pk).terms.total == 7
    with redis_commands() as commands:
        assert post(client, tokens[1]).status_code == 202
    assert len(commands.ledger) == 1
    assert not ledger.exists(LedgerKeys(sale.pk).loading)


def test_sale_being_loaded_is_unavailable(ledger: Redis) -> None:
    sale = make_sale(loaded=False)
    token = token_for(sale, make_buyer())
    ledger.set(LedgerKeys(sale.pk).loading, "1")
    with pytest.raises(LedgerUnavailable):
        place(token)
    ledger.delete(LedgerKeys(sale.pk).loading)
    assert place(token) == token


# --- A broker that is not there ------------------------------------------------------------------


@pytest.mark.usefixtures("broker_refuses")
def test_broker_down_still_accepts(client: Client) -> None:
    sale, failed, skipped = make_sale(), publishes("failed"), publishes("skipped")
    first, second = tokens_for(sale, make_buyers(2))
    began = running_s()
    assert post(client, first).status_code == 202
    assert running_s() - began < MOMENT_S
    assert publishes("failed") == failed + 1
    assert publishes("skipped") == skipped

    other = token_for(make_sale(), make_buyer())  # a sale of its own: a kick is due again
    assert post(client, other).status_code == 202
    assert publishes("failed") == failed + 1, "the broker was asked again"
    assert publishes("skipped") == skipped + 1
    assert post(client, second).status_code == 202
    assert pending_ids(sale) == [first.order_id, second.order_id]


def test_backlog_refuses_new_buyers_with_its_age(
    ledger: Redis, client: Client, settings: Settings
) -> None:
    settings.SECKILL_BEHIND_MS = 5_000
    sale = make_sale()
    early, late = tokens_for(sale, make_buyers(2))
    path = f"/vouchers/{sale.pk}/orders/"
    assert client.post(path, {"token": early.sign()}).status_code == 202
    ledger.zincrby(LedgerKeys(sale.pk).pending, -12_000, f"{early.order_id}:{early.user_id}:1")

    refused = client.post(path, {"token": late.sign()}, headers={"Accept-Language": "en"})
    assert (refused.status_code, refused["Retry-After"]) == (503, "7")
    assert refused.json()["code"] == "unavailable"
    assert "12 s late" in refused.json()["message"]
    assert client.post(path, {"token": early.sign()}).status_code == 202, "the earlier answer"

    settings.SECKILL_BEHIND_MS = 0
    assert client.post(path, {"token": late.sign()}).status_code == 202


def test_token_of_another_sale_with_this_id_buys_nothing(client: Client) -> None:
    """The id was given again after an older backup was restored."""
    sale = make_sale()
    [token] = issue_tokens(sale=sale, user_ids=[make_buyer().pk])
    sale.identity += 1
    sale.save()
    load_sale(sale_id=sale.pk)

    assert post(client, token).status_code == 403
    assert snapshot(sale_id=sale.pk).taken == 0
