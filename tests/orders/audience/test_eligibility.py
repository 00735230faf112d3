"""Tests of each rule about purchase tokens, at both doors and without JavaScript."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client
from django.utils import translation
from pytest_django import DjangoAssertNumQueries, Settings

from orders.audience import eligibility
from orders.audience.caps import capped_accounts
from orders.audience.checks import CHECKS, old_from_ms
from orders.audience.refusal_log import count_refused, flush_refusals
from orders.audience.verdicts import ELIGIBLE, Verdict
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, RuleRefusal, VoucherOrder
from orders.placing.tokens import read_token
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from seckill_site.formatting import date_and_time
from seckill_site.process_memory import forget_everything
from tests.orders.audience.rules import give_code, make_member, make_old
from tests.support import asgi, wsgi
from tests.support.browsers import browser_of
from tests.support.orders import (
    make_buyer,
    make_order,
    make_sale,
    reserved,
    reserved_purchase,
    token_for,
)
from tests.support.patience import wait_for
from tests.support.payments import pay
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.catalogue import public_sales
from vouchers.catalogue.audience import EVERYBODY, Audience
from vouchers.models import SeckillVoucher, Work

pytestmark = pytest.mark.django_db

HTML = "text/html"


class Shopper:
    """A signed-in buyer who asks at one of the doors."""

    def __init__(self, buyer: User, door: str) -> None:
        self.buyer = buyer
        self.client = browser_of(buyer, headers={"Accept-Language": "en"})
        self._ask = asgi.ask if door == "front door" else None

    def get(self, path: str, language: str = "en") -> Answer:
        if self._ask:
            cookies = "; ".join(f"{it.key}={it.value}" for it in self.client.cookies.values())
            return self._ask("GET", path, HTTP_COOKIE=cookies, HTTP_ACCEPT_LANGUAGE=language)
        found = self.client.get(path, headers={"Accept-Language": language})
        return Answer(found.status_code, dict(found.items()), found.content)

    def me(self, sale: SeckillVoucher) -> dict[str, Any]:
        return dict(self.get(f"/me/?sale={sale.pk}").json["sale"])

    def token(self, sale: SeckillVoucher, language: str = "en") -> Answer:
        return self.get(f"/vouchers/{sale.pk}/token/", language)

    def form(self, sale: SeckillVoucher) -> str:
        answer = self.client.get(f"/vouchers/{sale.pk}/form/", headers={"Accept": HTML})
        assert answer.status_code == 200
        return answer.content.decode()


@pytest.fixture(params=["front door", "django"])
def shopper(request: pytest.FixtureRequest, buyer: User) -> Shopper:
    return Shopper(buyer, request.param)


THREE_DAYS_S = 3 * 86_400

Case = tuple[str, Callable[[User], SeckillVoucher], Callable[[SeckillVoucher, User], object], str]


def leave_orders(buyer: User) -> None:
    buyer.voucher_orders.update(status=OrderStatus.CANCELLED, live=None)


def one_with_an_order(buyer: User) -> SeckillVoucher:
    make_order(make_sale(), buyer, status=OrderStatus.PAID)
    return make_sale(first_order_only=True)


CASES: list[Case] = [
    (
        "group",
        lambda buyer: make_sale(group=make_member(make_buyer())),
        lambda sale, buyer: make_member(buyer),
        "This sale is for members; your account isn't one.",
    ),
    (
        "account_age",
        lambda buyer: make_sale(account_age_h=24, ends_in_s=THREE_DAYS_S),
        lambda sale, buyer: make_old(buyer, hours=25),
        "Your account is too new for this sale.",
    ),
    (
        "first_order",
        one_with_an_order,
        lambda sale, buyer: leave_orders(buyer),
        "This sale is only for a first order, and you already have one.",
    ),
    (
        "code",
        lambda buyer: make_sale(needs_code=True),
        lambda sale, buyer: give_code(sale, buyer),
        "This sale takes an invitation code. Enter yours first.",
    ),
]
every_rule = pytest.mark.parametrize(
    ("rule", "open_sale", "satisfy", "message"),
    slow_after(2, CASES),
    ids=[case[0] for case in CASES],
)


@every_rule
def test_refusal_names_the_rule_until_it_is_satisfied(
    shopper: Shopper,
    rule: str,
    open_sale: Callable[[User], SeckillVoucher],
    satisfy: Callable[[SeckillVoucher, User], object],
    message: str,
) -> None:
    sale = open_sale(shopper.buyer)
    refused = shopper.token(sale)
    assert (refused.status, refused.json) == (
        403,
        {"code": "not_eligible", "message": message, "rule": rule},
    )
    mine = shopper.me(sale)
    assert (mine["rule"], mine["own_state"], mine["token"]) == (rule, "not_eligible", "")
    page = shopper.form(sale)
    assert 'name="token"' not in page
    assert 'data-state="not_eligible"' in page
    assert message.replace("first.", "below.") in unescape(page)
    satisfy(sale, shopper.buyer)
    eligibility._known.forget()  # a second later
    assert shopper.token(sale).status == 200
    mine = shopper.me(sale)
    assert "rule" not in mine
    assert mine["own_state"] is None
    assert read_token(mine["token"], sale_id=sale.pk, now_ms=0).user_id == shopper.buyer.pk


@every_rule
def test_guard_off_everybody_gets_a_token(
    shopper: Shopper,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    open_sale: Callable[[User], SeckillVoucher],
    satisfy: Callable[[SeckillVoucher, User], object],
    message: str,
) -> None:
    monkeypatch.setattr(eligibility, "_verdict", lambda *_: ELIGIBLE)
    assert shopper.token(open_sale(shopper.buyer)).status == 200


def test_confirmed_contact_is_asked_of_the_one_function(
    shopper: Shopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale(needs_contact=True)
    User.objects.filter(pk=shopper.buyer.pk).update(email="ann@example.com")
    assert shopper.token(sale).json["rule"] == "contact", "an address alone proves nothing"
    eligibility._known.forget()
    monkeypatch.setitem(CHECKS, "contact", lambda sale_id, user_id, _: user_id == shopper.buyer.pk)
    assert shopper.token(sale).status == 200


def test_refusal_is_worded_in_the_buyers_language(shopper: Shopper) -> None:
    refused = shopper.token(make_sale(account_age_h=24), "zh-CN")
    assert "注册时间" in refused.json["message"]


def test_all_rules_have_to_be_passed(shopper: Shopper) -> None:
    group = make_member(shopper.buyer)
    sale = make_sale(group=group, account_age_h=24, needs_code=True)
    found = []
    for satisfy in (make_old, None):
        found.append(shopper.me(sale)["rule"])
        eligibility._known.forget()
        if satisfy:
            satisfy(shopper.buyer, hours=48)
    assert found == ["account_age", "code"]


def test_rule_is_told_before_the_start(shopper: Shopper) -> None:
    sale = make_sale(begins_in_s=600, needs_code=True)
    assert shopper.me(sale)["rule"] == "code"
    assert 'id="code-entry"' in shopper.form(sale)


# --- What helps, in the place of the button ------------------------------------------------------


BUTTON = re.compile(
    r'<(?:a|button)[^>]*class="button button--buy[^>]*>(.*?)</(?:a|button)>', re.DOTALL
)


def button_of(page: str) -> list[str]:
    """Return the labels of the main buttons of a page."""
    return [it.strip() for it in BUTTON.findall(page)]


def test_young_account_learns_when_it_may_buy(shopper: Shopper) -> None:
    sale = make_sale(account_age_h=24, ends_in_s=THREE_DAYS_S)
    from_ = shopper.buyer.date_joined + dt.timedelta(hours=24)
    assert shopper.me(sale)["eligible_at_ms"] == epoch_ms(from_)
    with translation.override("en"):
        day = date_and_time(from_)
    assert button_of(shopper.form(sale)) == [f"Eligible from {day}"]


def test_sale_that_ends_too_soon_promises_a_young_account_nothing(shopper: Shopper) -> None:
    sale = make_sale(account_age_h=24)
    page = shopper.form(sale)
    assert "This sale ends before your account is old enough for it." in page
    assert button_of(page) == []


def test_deleted_account_is_refused_without_a_day(buyer: User) -> None:
    assert old_from_ms(buyer.pk + 1, 24) is None


@pytest.mark.parametrize("rule", ["group", "first_order"])
def test_refusal_that_nothing_helps_has_no_button(shopper: Shopper, rule: str) -> None:
    sale = {name: open_sale for name, open_sale, *_ in CASES}[rule](shopper.buyer)
    assert button_of(shopper.form(sale)) == []


def test_buyer_without_a_contact_is_led_to_verify_one(shopper: Shopper) -> None:
    page = shopper.form(sale := make_sale(needs_contact=True))
    assert button_of(page) == ["Verify phone"]
    for path in ("/accounts/phone/change/", "/accounts/email/"):
        assert f'href="{path}?next=/vouchers/{sale.pk}/form/"' in page


def test_buyer_without_a_code_finds_its_field_and_button(shopper: Shopper) -> None:
    assert button_of(shopper.form(make_sale(needs_code=True))) == ["Enter code"]


def test_everybody_reads_who_can_buy() -> None:
    sale = make_sale(account_age_h=24, needs_code=True, first_order_only=True, needs_contact=True)
    page = Client(headers={"Accept": HTML, "Accept-Language": "en"}).get(f"/vouchers/{sale.pk}/")
    words = re.findall(r"<li>(Only [^<]+)</li>", page.content.decode())
    assert len(words) == 4
    assert "Only for accounts that are at least 1 day old" in words
    other = Client(headers={"Accept": HTML}).get(f"/vouchers/{make_sale().pk}/")
    assert 'id="audience"' not in other.content.decode()


def test_changed_rule_reaches_new_tokens(shopper: Shopper) -> None:
    sale = make_sale()
    assert shopper.token(sale).status == 200
    SeckillVoucher.objects.filter(pk=sale.pk).update(needs_code=True)
    public_sales._known.forget()  # a second later
    assert shopper.token(sale).status == 403


def test_token_from_before_the_rule_counts(shopper: Shopper) -> None:
    sale = make_sale(account_age_h=24)
    token = token_for(sale, shopper.buyer)
    answer = wsgi.ask("POST", f"/vouchers/{sale.pk}/orders/", {"token": token.sign()})
    assert answer.status == 202


def test_held_order_is_shown_whatever_the_rules_say(shopper: Shopper) -> None:
    sale = make_sale(account_age_h=24, needs_code=True)
    (token,) = reserved(sale, [shopper.buyer])
    mine = shopper.me(sale)
    assert (mine["own_state"], mine["order_id"]) == ("queued", str(token.order_id))
    fulfil_sale(sale_id=sale.pk)
    assert shopper.me(sale)["own_state"] == "yours"
    assert 'class="button button--buy button--order"' in shopper.form(sale)
    assert pay(VoucherOrder.objects.get(pk=token.order_id))
    flush_refusals()
    assert count_refused(sale_id=sale.pk) == {}


def test_refused_buyer_is_asked_for_no_picture(buyer: User) -> None:
    sale = make_sale(work=Work.LIGHT, needs_code=True)
    assert "challenge-form" not in Shopper(buyer, "django").form(sale)


def test_refused_buyer_is_not_sent_into_the_waiting_room(shopper: Shopper) -> None:
    line: dict[str, Any] = {"room": "start", "room_opened_ms": 1, "room_since_ms": 1}
    sale = make_sale(begins_in_s=600, needs_code=True, **line)
    mine = shopper.me(sale)
    assert mine["rule"] == "code"
    assert "room" not in mine
    assert 'id="code-entry"' in shopper.form(sale)


# --- What it costs -------------------------------------------------------------------------------


def test_verdict_is_kept_for_a_while(
    shopper: Shopper, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_sale(account_age_h=24, needs_code=True)
    make_old(shopper.buyer, hours=48)
    give_code(sale, shopper.buyer)
    audience = Audience(account_age_h=24, needs_code=True)
    ids = {"sale_id": sale.pk, "user_id": shopper.buyer.pk}
    assert eligibility.recall_verdict(**ids, audience=audience) is None
    shopper.me(sale)
    with django_assert_num_queries(0):
        assert eligibility.judge_buyer(**ids, audience=audience) == Verdict(codes=1)
    assert eligibility.recall_verdict(**ids, audience=replace(audience, group_id=1)) is None


# --- Whom the rules refused ----------------------------------------------------------------------


def test_each_refused_buyer_counts_once_per_rule(
    shopper: Shopper, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_sale(needs_code=True)
    for buyer in (shopper.buyer, shopper.buyer, make_buyer()):
        Shopper(buyer, "django").token(sale)
        flush_refusals()
    shopper.me(sale)
    with django_assert_num_queries(0):
        flush_refusals()
    assert count_refused(sale_id=sale.pk) == {"code": 2}


def test_refusal_keeps_its_first_time(buyer: User) -> None:
    sale, before = make_sale(needs_code=True), database_now()
    Shopper(buyer, "django").token(sale)
    flush_refusals()
    first = RuleRefusal.objects.get().refused_at
    assert first
    assert before <= first <= database_now()
    forget_everything()
    Shopper(buyer, "django").token(sale)
    flush_refusals()
    assert RuleRefusal.objects.get().refused_at == first


# --- Unpaid orders -------------------------------------------------------------------------------


@pytest.fixture
def due() -> None:
    """Let this process read the accounts with too many unpaid orders with its next request."""
    capped_accounts.forget()


@pytest.mark.usefixtures("due")
@pytest.mark.parametrize(("orders", "status"), [(4, 200), (5, 403)])
def test_unpaid_orders_are_capped(shopper: Shopper, orders: int, status: int) -> None:
    for _ in range(orders):
        make_order(make_sale(loaded=False), shopper.buyer)
    make_order(make_sale(loaded=False), shopper.buyer, status=OrderStatus.PAID)
    sale = make_sale()
    # The front door counts beside the request, and goes by the last count until then.
    wait_for(lambda: shopper.token(sale).status == status, what=f"answer {status}")
    answer, mine = shopper.token(sale), shopper.me(sale)
    if status == 403:
        assert answer.json["rule"] == mine["rule"] == "unpaid_orders"
        assert mine["rule_number"] == 5
        latest = shopper.buyer.voucher_orders.filter(status=OrderStatus.UNPAID).latest("pk")
        url = f"/vouchers/{latest.seckill_voucher_id}/orders/{latest.pk}/"
        assert mine["unpaid_url"] == url
        page = shopper.form(sale)
        assert button_of(page) == ["Pay your order"]
        assert f'href="{url}"' in page
        flush_refusals()
        assert count_refused(sale_id=sale.pk) == {"unpaid_orders": 1}
    else:
        assert mine["token"]


@pytest.mark.usefixtures("due")
@pytest.mark.parametrize(("units", "status"), [(4, 200), (5, 403)])
def test_units_of_one_press_count_as_unpaid_orders(
    shopper: Shopper, units: int, status: int
) -> None:
    several, other = make_sale(limit=6), make_sale()
    assert len(reserved_purchase(several, shopper.buyer, units)) == units
    fulfil_sale(sale_id=several.pk)
    wait_for(lambda: shopper.token(other).status == status, what=f"answer {status}")


@pytest.mark.usefixtures("due")
def test_without_a_cap_unpaid_orders_refuse_nobody(shopper: Shopper, settings: Settings) -> None:
    settings.SECKILL_UNPAID_ORDERS = 0
    for _ in range(6):
        make_order(make_sale(loaded=False), shopper.buyer)
    assert shopper.token(make_sale()).status == 200


@pytest.mark.usefixtures("due")
def test_capped_accounts_are_read_by_one_request(
    shopper: Shopper, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_sale()
    shopper.me(sale)
    with django_assert_num_queries(0):
        eligibility.judge_buyer(sale_id=sale.pk, user_id=shopper.buyer.pk, audience=EVERYBODY)


@pytest.mark.usefixtures("due")
def test_one_of_a_crowd_reads_the_capped_accounts() -> None:
    with ThreadPoolExecutor(8) as crowd:
        claims = list(crowd.map(lambda _: capped_accounts.claim(), range(64)))
    assert claims.count(True) == 1


def test_without_the_database_rules_are_answered_503(
    shopper: Shopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale(needs_code=True)

    def fail(*_: object) -> bool:
        raise OperationalError("away")

    monkeypatch.setitem(CHECKS, "code", fail)
    shopper.client.raise_request_exception = False
    assert shopper.token(sale).status == 503
    assert shopper.get(f"/me/?sale={sale.pk}").status == 503
