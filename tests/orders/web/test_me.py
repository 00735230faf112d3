"""``me/`` and ``token/``: the same from both doors, within their budget, and never of another."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from unittest.mock import ANY

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from pytest_django import DjangoAssertNumQueries

from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from orders.placing.tokens import read_token
from orders.roles import Role, make_roles
from orders.web import me_front_door
from orders.web.me_front_door import IDS_AT_ONCE, IDS_LIFE_S
from seckill_site import sessions
from seckill_site.clocks.machine import now_ms
from seckill_site.front_door.buyers import buyer_of
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support import wsgi
from tests.support.asgi import ask, loop
from tests.support.browsers import session_cookie
from tests.support.inspection import redis_commands
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, reserved
from tests.support.patience import wait_for
from tests.support.sales import make_waiting
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.purchases import is_in_block, purchase_of
from vouchers.models import SaleStage, SeckillVoucher
from vouchers.web import pace

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_memory")]


def me(cookie: str = "", sale: SeckillVoucher | None = None, **headers: Any) -> Answer:
    if cookie:
        headers["HTTP_COOKIE"] = cookie
    return ask("GET", f"/me/?sale={sale.pk}" if sale else "/me/", **headers)


def same_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what differs from one request to the next."""
    sale = body.get("sale")
    if sale:
        body = {**body, "sale": {**sale, "server_time_ms": ANY, "token": bool(sale["token"])}}
    return {**body, "server_time_ms": ANY}


def test_visitor_is_told_to_be_one_without_redis_and_sql(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    me()
    with redis_commands() as commands, django_assert_num_queries(0):
        answer = me(sale=SeckillVoucher(pk=4711))
    assert answer.json == {"signed_in": False, "server_time_ms": ANY}
    assert answer.headers["cache-control"] == "private, no-store"
    assert list(commands) == []


@pytest.mark.parametrize(
    ("role", "desk"), [(Role.CASHIER, "redeem"), (Role.OPERATOR, "office"), (None, None)]
)
def test_staff_is_told_where_they_work_without_sql(
    role: Role | None, desk: str | None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    user = make_buyer()
    if role:
        make_roles()
        User.objects.filter(pk=user.pk).update(is_staff=True)
        user.groups.add(Group.objects.get(name=role))
    cookie = session_cookie(User.objects.get(pk=user.pk))
    me(cookie)  # the cache knows the session from now on

    with django_assert_num_queries(0):
        answer = me(cookie)

    assert answer.json.get("staff_desk") == desk
    assert_same("/me/", {"HTTP_COOKIE": cookie})


def test_token_costs_one_command_to_each_redis_and_no_sql(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale, buyer = make_sale(), make_buyer()
    cookie, path = session_cookie(buyer), f"/vouchers/{sale.pk}/token/"
    first = ask("GET", path, HTTP_COOKIE=cookie).json
    with redis_commands() as commands, django_assert_num_queries(0):
        second = ask("GET", path, HTTP_COOKIE=cookie).json
    assert (len(commands.cache), len(commands.ledger)) == (1, 1)
    tokens = [read_token(it["token"], sale_id=sale.pk, now_ms=now_ms()) for it in (first, second)]
    assert len({it.order_id for it in tokens}) == 2
    assert {it.user_id for it in tokens} == {buyer.pk}


def test_ids_are_minted_for_many_tokens_and_none_is_used_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(me_front_door, "monotonic", lambda: now[0])
    sale, cookie = make_sale(), session_cookie(make_buyer())
    path = f"/vouchers/{sale.pk}/token/"

    def tokens(count: int) -> tuple[set[int], int]:
        """Return the order ids of as many tokens, and the commands to the ledger."""
        with redis_commands() as commands:
            texts = [ask("GET", path, HTTP_COOKIE=cookie).json["token"] for _ in range(count)]
            wait_for(lambda: not is_minting(), what="minting")
        read = [read_token(it, sale_id=sale.pk, now_ms=now_ms()) for it in texts]
        return {it.order_id for it in read}, len(commands.ledger)

    def is_minting() -> bool:
        async def ask_loop() -> bool:
            return me_front_door._order_ids().running("ids") is not None

        return asyncio.run_coroutine_threadsafe(ask_loop(), loop()).result(60)

    first, commands = tokens(1)
    assert commands == 2, "the first after a pause also mints"
    rest, commands = tokens(2 * IDS_AT_ONCE)
    assert (len(first | rest), commands) == (1 + 2 * IDS_AT_ONCE, 2 * IDS_AT_ONCE + 2)
    now[0] += IDS_LIFE_S
    late, commands = tokens(1)
    assert (len(first | rest | late), commands) == (2 + 2 * IDS_AT_ONCE, 2)


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("at_the_door", [True, False])
def test_token_has_a_block_where_the_limit_is_above_one(at_the_door: bool, limit: int) -> None:
    sale, cookie = make_sale(limit=limit), session_cookie(make_buyer())
    door = partial(ask, "GET") if at_the_door else wsgi_ask
    answers = [
        door(f"/vouchers/{sale.pk}/token/", HTTP_COOKIE=cookie).json["token"],
        door(f"/me/?sale={sale.pk}", HTTP_COOKIE=cookie).json["sale"]["token"],
    ]
    ids = [read_token(it, sale_id=sale.pk, now_ms=now_ms()).order_id for it in answers]

    assert [is_in_block(it) for it in ids] == [limit > 1] * 2
    assert len({purchase_of(it) for it in ids}) == 2


def test_unpaid_order_with_a_copy_needs_no_sql(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale, buyer = make_sale(), make_buyer()
    cookie = session_cookie(buyer)
    me(cookie, sale)
    (token,) = reserved(sale, [buyer])
    with django_assert_num_queries(0):
        assert me(cookie, sale).json["sale"]["own_state"] == "queued"
    fulfil_sale(sale_id=sale.pk)
    with django_assert_num_queries(0):
        found = me(cookie, sale).json["sale"]
    assert (found["status"], found["order_id"]) == ("unpaid", str(token.order_id))
    assert found["pay_by_ms"] is not None


def _nothing(sale: SeckillVoucher, buyer: User) -> None:
    """The buyer has nothing."""


def _queued(sale: SeckillVoucher, buyer: User) -> None:
    reserved(sale, [make_buyer(), buyer])


def _unpaid(sale: SeckillVoucher, buyer: User) -> None:
    reserved(sale, [buyer])
    fulfil_sale(sale_id=sale.pk)


def _paid(sale: SeckillVoucher, buyer: User) -> None:
    (token,) = reserved(sale, [buyer])
    fulfil_sale(sale_id=sale.pk)
    VoucherOrder.objects.filter(pk=token.order_id).update(status=OrderStatus.PAID)
    SeckillVoucher.objects.filter(pk=sale.pk).update(rebuy=True)
    forget_copies(sale)


def _barred(sale: SeckillVoucher, buyer: User) -> None:
    make_order(sale, buyer, status=OrderStatus.CANCELLED)
    forget(sale)


def _waits(sale: SeckillVoucher, buyer: User) -> None:
    reserved(sale, make_buyers(sale.stock))
    make_waiting(sale, buyer, order_id=1)
    forget(sale)


def _not_loaded(sale: SeckillVoucher, buyer: User) -> None:
    forget(sale)


def forget(sale: SeckillVoucher) -> None:
    ledger_connection().delete(*LedgerKeys(sale.pk).contents)


def forget_copies(sale: SeckillVoucher) -> None:
    ledger_connection().delete(*LedgerKeys(sale.pk).copies)


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize(
    "prepare", slow_after(1, [_nothing, _queued, _unpaid, _paid, _barred, _waits, _not_loaded])
)
def test_front_door_answers_as_django_does(prepare: Any, language: str) -> None:
    sale, buyer = make_sale(stock=2, rebuy=False), make_buyer()
    prepare(sale, buyer)
    sent = {"HTTP_COOKIE": session_cookie(buyer), "HTTP_ACCEPT_LANGUAGE": language}
    assert_same(f"/me/?sale={sale.pk}", sent)
    assert_same("/me/", sent)
    assert_same(f"/vouchers/{sale.pk}/token/", sent)


@pytest.mark.parametrize("query", ["", "?sale=999", "?sale=0", "?sale=x", "?other=1"])
@pytest.mark.parametrize("cookie", ["", "unknown", "user"])
def test_queries_are_answered_as_django_does(cookie: str, query: str) -> None:
    sent = {"HTTP_ACCEPT_LANGUAGE": "zh-hans"}
    if cookie:
        sent["HTTP_COOKIE"] = (
            session_cookie(make_buyer()) if cookie == "user" else f"sessionid={cookie}"
        )
    assert_same(f"/me/{query}", sent)
    assert_same("/vouchers/999/token/", sent)


def wsgi_ask(path: str, **sent: Any) -> Answer:
    path, _, query = path.partition("?")
    return wsgi.ask("GET", path, QUERY_STRING=query, **sent)


def assert_same(path: str, sent: dict[str, Any]) -> None:
    cache.clear()
    fast, again = ask("GET", path, **sent), ask("GET", path, **sent)
    complete = wsgi_ask(path, **sent)
    for answer in (fast, again):
        assert answer.status == complete.status
        assert {**answer.headers, "content-length": ANY} == {
            **complete.headers,
            "content-length": ANY,
        }
        assert same_body(answer) == same_body(complete)


def same_body(answer: Answer) -> dict[str, Any]:
    body = same_of(answer.json)
    return {**body, "token": ANY} if "token" in body else body


def test_draft_sale_is_unknown_even_while_loaded() -> None:
    sale, cookie = make_sale(), session_cookie(make_buyer())
    SeckillVoucher.objects.filter(pk=sale.pk).update(stage=SaleStage.DRAFT)
    answer = me(cookie, sale)
    assert (answer.status, answer.json["code"]) == (404, "not_found")


def test_sale_that_is_over_has_no_token() -> None:
    sale = make_sale(begins_in_s=-60, ends_in_s=-1)
    found = me(session_cookie(make_buyer()), sale).json["sale"]
    assert (found["token"], found["expires_at_ms"]) == ("", None)


@pytest.mark.parametrize("at_the_door", [False, True], ids=["django", "front door"])
def test_lost_ledger_is_unavailable(lose_ledger: Any, at_the_door: bool) -> None:
    sale, cookie = make_sale(), session_cookie(make_buyer())
    lose_ledger()
    path = f"/me/?sale={sale.pk}"
    answer = me(cookie, sale) if at_the_door else wsgi_ask(path, HTTP_COOKIE=cookie)
    assert (answer.status, answer.json["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"


def test_flood_of_one_unknown_cookie_costs_one_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    me("sessionid=" + "y" * 32)
    cookie = "sessionid=" + "x" * 32
    with redis_commands() as commands, django_assert_num_queries(1):
        answers = [me(cookie) for _ in range(5)]
    assert {it.json["signed_in"] for it in answers} == {False}
    assert len(commands.cache) == 3  # the front door's, the session's and the lease


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_no_mix_of_facts_shows_another_person(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put each user's facts in the place of each other's: a cookie still gets its owner."""
    if not guarded:

        def believe(_: Any, facts: dict[str, Any]) -> sessions.Buyer | None:
            return sessions.Buyer(facts["id"], facts["name"]) if facts else None

        monkeypatch.setattr(sessions, "_buyer", believe)
    shown: set[bool] = set()
    sale, buyers = make_sale(), make_buyers(3)
    cookies = {buyer.username: session_cookie(buyer) for buyer in buyers}
    for cookie in cookies.values():
        me(cookie, sale)
    names = [f"seckill.user{buyer.pk}" for buyer in buyers]
    texts = [cache.get(name) for name in names]
    assert all(texts)
    for shift in (1, 2):
        for name, text in zip(names, texts[shift:] + texts[:shift], strict=True):
            cache.set(name, text)
        for username, cookie in cookies.items():
            answer = me(cookie, sale).json
            token = read_token(answer["sale"]["token"], sale_id=sale.pk, now_ms=now_ms())
            owner = User.objects.get(username=username).pk
            told = (answer["name"], answer["sale"]["buyer_id"], token.user_id)
            shown.add(told == (username, str(owner), owner))
        for name, text in zip(names, texts, strict=True):
            cache.set(name, text)
    assert shown == {guarded}


def test_answers_of_many_at_once_go_to_their_owners() -> None:
    sale, buyers = make_sale(), make_buyers(5)
    cookies = {buyer: session_cookie(buyer) for buyer in buyers}
    for cookie in cookies.values():
        me(cookie, sale)

    async def all_at_once() -> list[Any]:
        keys = [cookie.partition("=")[2] for cookie in cookies.values()] * 20
        return await asyncio.gather(*map(buyer_of, keys))

    found = asyncio.run_coroutine_threadsafe(all_at_once(), loop()).result(60)
    assert [it.user_id for it in found] == [buyer.pk for buyer in buyers] * 20


def test_requests_are_counted_for_the_pace_of_the_crowd() -> None:
    me()
    assert pace._crowd.value[0] >= 1
