"""The counter: who may redeem, what is shown of a code, and one clear answer for each."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from orders.lifecycle.redemption import GUESSES, written_code
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from orders.web import staff_views
from tests.orders.lifecycle.test_redemption import lose_the_cache
from tests.support.inspection import rows
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, pay
from vouchers.models import Merchant, Voucher

pytestmark = pytest.mark.django_db

PAGE = "/staff/redeem/"
HTML = {"Accept": "text/html", "Accept-Language": "en"}


def member(name: str, *, is_staff: bool = True) -> User:
    user = User.objects.create(username=name, password="!", is_staff=is_staff)
    user.user_permissions.add(Permission.objects.get(codename="redeem_voucherorder"))
    return user


def at_counter(user: User | None) -> Client:
    client = Client(headers=HTML)
    if user:
        client.force_login(user)
    return client


@pytest.fixture
def clerk() -> Client:
    """The client of somebody at the counter."""
    return at_counter(member("clerk"))


@pytest.fixture
def voucher() -> VoucherOrder:
    """A paid order with its code."""
    order = make_unpaid_order(make_sale())
    pay(order)
    order.refresh_from_db()
    assert order.code
    return order


def code_of(order: VoucherOrder) -> str:
    return written_code(order.code or "")


def look(client: Client, code: str) -> Any:
    return client.post(PAGE, {"code": code, "check": "1"})


def use(client: Client, code: str) -> Any:
    return client.post(PAGE, {"code": code})


ASKS: dict[str, Callable[[Client, str], Any]] = {"look": look, "use": use}


def verdict(response: Any, status: int = 200) -> str:
    """Return what the page says of the code, and assert that it says it once."""
    assert response.status_code == status
    assert response["Cache-Control"] == "private, no-store"
    found = re.findall(r'data-verdict="(\w+)"', response.text)
    assert len(found) <= 1
    return "".join(found)


def facts(response: Any) -> dict[str, str]:
    """Return what the page tells of the voucher, by its headings."""
    text = re.sub(r"\s+", " ", response.text)
    pairs = re.findall(r"<dt>(.*?)</dt> ?<dd[^>]*>(.*?)</dd>", text)
    return {key.strip(): unescape(re.sub("<[^>]+>", "", value)).strip() for key, value in pairs}


# --- Who -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["get", "post"])
def test_visitor_signs_in_and_returns(method: str) -> None:
    response = getattr(at_counter(None), method)(PAGE)
    assert response.status_code == 302
    where = urlsplit(response["Location"])
    assert (where.path, parse_qs(where.query)) == ("/accounts/login/", {"next": [PAGE]})


def test_only_the_counter_may_use_the_camera(clerk: Client, voucher: VoucherOrder) -> None:
    for response in (clerk.get(PAGE), look(clerk, code_of(voucher)), look(clerk, "0000")):
        assert "camera=(self), display-capture=()" in response["Permissions-Policy"]
    for path in ("/", "/orders/"):
        assert "camera=(), display-capture=()" in clerk.get(path)["Permissions-Policy"]


def test_code_in_an_address_is_not_read(clerk: Client, voucher: VoucherOrder) -> None:
    """Servers log addresses."""
    response = clerk.get(f"{PAGE}?code={code_of(voucher)}")
    assert verdict(response) == ""
    assert facts(response) == {}


@pytest.mark.parametrize("method", ["get", "post"])
def test_redeeming_is_for_staff_alone(voucher: VoucherOrder, method: str) -> None:
    """Permissions of staff are tested in ``tests/orders/test_roles.py``."""
    client = at_counter(member("other", is_staff=False))
    before = rows()
    response = getattr(client, method)(PAGE, {"code": code_of(voucher)})
    assert response.status_code == 403
    assert voucher.seckill_voucher.voucher.title not in response.text
    assert rows() == before


def test_post_without_csrf_token_is_refused(voucher: VoucherOrder) -> None:
    client = Client(enforce_csrf_checks=True, headers=HTML)
    client.force_login(member("clerk"))
    assert client.post(PAGE, {"code": voucher.code or ""}).status_code == 403
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID


# --- Looking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"code": ""}, {"code": "   "}])
@pytest.mark.parametrize("method", ["get", "post"])
def test_no_code_shows_the_form(clerk: Client, method: str, query: dict[str, str]) -> None:
    response = getattr(clerk, method)(PAGE, query)
    assert verdict(response) == ""
    assert '<label for="code">' in response.text
    assert facts(response) == {}


def test_lookup_shows_the_voucher_and_changes_nothing(clerk: Client, voucher: VoucherOrder) -> None:
    before = rows()
    response = look(clerk, code_of(voucher))
    assert verdict(response) == "valid"
    assert "verdict--good" not in response.text, "green is kept for what is redeemed"
    assert voucher.user
    shown = facts(response)
    assert shown.pop("Since")
    assert shown == {
        "Face value": "¥100.00",
        "Buyer": voucher.user.username,
        "State": "paid",
        "Code": code_of(voucher),
        "Order number": str(voucher.pk),
    }
    assert voucher.seckill_voucher.voucher.title in response.text
    assert rows() == before
    assert response.text.count("Redeem now") == 1


@pytest.mark.parametrize("method", ASKS)
def test_unredeemable_voucher_shows_its_state(
    clerk: Client, voucher: VoucherOrder, method: str
) -> None:
    VoucherOrder.objects.filter(pk=voucher.pk).update(status="refunded", live=None)
    before = rows()
    response = ASKS[method](clerk, voucher.code or "")
    assert verdict(response, 200 if method == "look" else 409) == "not_valid"
    assert "Not valid: the order is refunded" in response.text
    assert 'action="/staff/redeem/"' in response.text
    assert "Redeem now" not in response.text
    assert rows() == before


@pytest.mark.parametrize("method", ASKS)
def test_disputed_voucher_is_not_accepted(
    clerk: Client, voucher: VoucherOrder, method: str
) -> None:
    voucher.payments.create(reference="p", amount_cents=1, status="disputed", settles=True)
    response = ASKS[method](clerk, voucher.code or "")
    assert verdict(response, 200 if method == "look" else 409) == "disputed"
    assert "verdict--bad" in response.text
    assert "Redeem now" not in response.text


@pytest.mark.parametrize("text", ["AAAA-BBBB-CCCC-DDDD", "<script>é🙂", "9" * 3000])
@pytest.mark.parametrize("method", ASKS)
def test_wrong_code_is_shown_and_the_field_is_empty(clerk: Client, method: str, text: str) -> None:
    response = ASKS[method](clerk, text)
    assert verdict(response, 404) == "no_such_code"
    assert "<script>" not in response.text
    shown = re.search(r'id="typed"[^>]*>([^<]*)<', response.text)
    assert shown
    assert unescape(shown[1]) == text
    assert re.search(r'<input id="code"\s+name="code"\s+value=""', response.text)


# --- Redeeming -----------------------------------------------------------------------------------


def test_redeeming_uses_the_voucher(clerk: Client, voucher: VoucherOrder) -> None:
    response = clerk.post(PAGE, {"code": code_of(voucher)})
    assert verdict(response) == "redeemed"
    assert "verdict--good" in response.text
    assert "Redeemed" in response.text
    assert "Redeem now" not in response.text
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.USED
    event = OrderEvent.objects.get(order=voucher, after="used")
    assert event.actor
    assert (event.actor_kind, event.actor.username) == ("staff", "clerk")


def test_second_redeem_shows_when_and_by_whom(clerk: Client, voucher: VoucherOrder) -> None:
    clerk.post(PAGE, {"code": voucher.code or ""})
    event = OrderEvent.objects.get(order=voucher, after="used")
    before = rows()
    other = at_counter(member("ben"))
    for response, status in (
        (other.post(PAGE, {"code": voucher.code or ""}), 409),
        (look(other, voucher.code or ""), 200),
    ):
        assert verdict(response, status) == "used_before"
        assert "verdict--bad" in response.text
        shown = facts(response)
        assert shown["Used by"] == "clerk"
        assert shown["Used at"] == f"{timezone.localtime(event.at):%Y-%m-%d %H:%M:%S}"
    assert rows() == before


def test_used_voucher_page_survives_deleted_account(clerk: Client, voucher: VoucherOrder) -> None:
    leaver = member("leaver")
    at_counter(leaver).post(PAGE, {"code": voucher.code or ""})
    leaver.delete()
    assert facts(look(clerk, voucher.code or ""))["Used by"] == "staff"


def test_title_and_rules_are_escaped(clerk: Client, voucher: VoucherOrder) -> None:
    item = voucher.seckill_voucher.voucher
    item.title, item.rules = "<b>Hotpot</b>", "Not on\nSundays <i>"
    item.save()
    page = look(clerk, voucher.code or "").text
    assert "&lt;b&gt;Hotpot" in page
    assert "Not on<br>Sundays &lt;i&gt;" in page


# --- Guessing ------------------------------------------------------------------------------------


def test_guessing_is_throttled_per_account(
    clerk: Client, voucher: VoucherOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dt.datetime(2026, 11, 11, 12, 0, 40, tzinfo=dt.UTC)
    monkeypatch.setattr(staff_views, "database_now", lambda: now)
    for _ in range(GUESSES.most):
        assert verdict(look(clerk, "AAAA"), 404) == "no_such_code"
    for method in ASKS:
        response = ASKS[method](clerk, voucher.code or "")
        assert verdict(response, 429) == "too_many"
        assert response["Retry-After"] == "20"
        assert "Wait 20 seconds" in response.text
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID
    assert verdict(look(at_counter(member("ben")), voucher.code or "")) == "valid"
    assert verdict(clerk.get(PAGE)) == "", "the form is there"


@pytest.mark.slow
@pytest.mark.parametrize("method", ASKS)
def test_lookup_is_refused_if_guesses_cannot_be_counted(
    clerk: Client, voucher: VoucherOrder, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows()
    lose_the_cache(monkeypatch)
    response = ASKS[method](clerk, voucher.code or "")
    assert verdict(response, 503) == "away"
    assert response["Retry-After"] == "5"
    assert voucher.seckill_voucher.voucher.title not in response.text
    assert rows() == before


def test_redeeming_works_without_the_ledger(
    clerk: Client, voucher: VoucherOrder, lose_ledger: Callable[[], None]
) -> None:
    lose_ledger()
    assert verdict(clerk.post(PAGE, {"code": voucher.code or ""})) == "redeemed"


# --- Past the last day ---------------------------------------------------------------------------


@pytest.fixture
def past(voucher: VoucherOrder) -> VoucherOrder:
    """A paid order whose voucher was valid until yesterday."""
    merchant = Merchant.objects.create(name="Old Street")
    Voucher.objects.filter(sales=voucher.seckill_voucher_id).update(
        valid_until=timezone.localdate() - dt.timedelta(days=1), merchant=merchant
    )
    return voucher


def test_past_voucher_asks_for_a_reason(clerk: Client, past: VoucherOrder) -> None:
    response = look(clerk, code_of(past))
    assert verdict(response) == "past"
    assert 'name="why"' in response.text
    assert "Redeem now" not in response.text
    assert facts(response)["Merchant"] == "Old Street"
    assert verdict(use(clerk, code_of(past)), 409) == "past"
    assert verdict(clerk.post(PAGE, {"code": code_of(past), "why": "  "}), 409) == "past"
    past.refresh_from_db()
    assert past.status == OrderStatus.PAID


def test_past_voucher_is_redeemed_with_a_reason(clerk: Client, past: VoucherOrder) -> None:
    response = clerk.post(PAGE, {"code": code_of(past), "why": f" came\nlate {'x' * 300}"})
    assert verdict(response) == "redeemed"
    event = OrderEvent.objects.get(order=past, after=OrderStatus.USED)
    assert event.reason.startswith("came late x")
    assert len(event.reason) == staff_views.LONGEST_REASON
