"""Opening a charge where providers have their edges: links that end, repeats, refusals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone, translation

from backoffice.today.figures import REFUSED_FOR, Rights, read_today
from backoffice.today.texts import alerts
from orders.models import Payment, VoucherOrder
from orders.payments.providers import (
    Charge,
    ChargeRefused,
    ClientKind,
    OpenedCharge,
    ProviderUnavailable,
)
from orders.payments.service import poll_payments, start_payment
from tests.support.inspection import assert_conserved
from tests.support.orders import PRICE_CENTS, make_sale
from tests.support.payments import (
    ADDRESSES,
    make_unpaid_order,
    owner_of,
    receipt_url,
    status_of,
    use_fake,
)
from tests.support.stand_ins.lives import everywhere, notify, opened
from tests.support.stand_ins.server import Fault, StandIn
from tests.support.stand_ins.stripe import StripeStandIn
from tests.support.stand_ins.wechat import WeChatStandIn
from tests.support.tiers import slow_after
from vouchers.models import Voucher

pytestmark = pytest.mark.django_db

by_request = pytest.mark.parametrize(
    "at", [StripeStandIn, WeChatStandIn], indirect=True, ids=lambda it: it.name
)
"""The providers that open a charge by a request: Alipay's is an address that we sign."""

in_wechat = pytest.mark.parametrize("at", [WeChatStandIn], indirect=True, ids=["wechat"])
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Mobile/15E148"
WECHAT = f"{PHONE} MicroMessenger/8.0.54"
HTML = {"Accept": "text/html"}
REFUSALS = {"stripe": "amount_too_small", "wechat": "PARAM_ERROR"}


def long_order() -> VoucherOrder:
    """Return an unpaid order whose time to pay is longer than any link's."""
    order = make_unpaid_order(make_sale())
    order.pay_by = timezone.now() + dt.timedelta(hours=12)
    order.save(update_fields=["pay_by"])
    return order


def click(order: VoucherOrder, **how: Any) -> str:
    """Return where the buyer is sent who clicks *Pay*."""
    defaults: dict[str, Any] = {**ADDRESSES, "now": timezone.now()}
    return start_payment(order_id=order.pk, **{**defaults, **how})


# --- A link has a life ----------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("client", slow_after(1, ClientKind))
def test_link_is_made_anew_after_its_end(at: StandIn, client: ClientKind) -> None:
    order = long_order()
    first = click(order, client=client)
    at.visit(first)
    at.let_links_end()
    url = click(order, client=client, now=timezone.now() + dt.timedelta(hours=2, minutes=5))
    at.visit(url)
    payment = Payment.objects.filter(order=order).latest("pk")
    at.pay(payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"
    if at.name == "wechat":
        assert (url != first, len(at.trades)) == (True, 1)


@in_wechat
@pytest.mark.parametrize(
    ("client", "lives"), [(ClientKind.PHONE, 5), (ClientKind.DESKTOP, 120)], ids=["page", "code"]
)
def test_link_is_kept_while_it_works(at: StandIn, client: ClientKind, lives: int) -> None:
    order, now = long_order(), timezone.now()
    first = click(order, client=client, now=now)
    soon, end = (now + dt.timedelta(minutes=it) for it in (lives * 0.7, lives))
    assert click(order, client=client, now=soon) == first
    assert click(order, client=client, now=end) != first


@in_wechat
def test_ended_code_is_not_shown(at: StandIn, client: Client) -> None:
    order = long_order()
    click(order)
    client.force_login(owner_of(order))
    page = client.get(f"{receipt_url(order)}pay/code/", headers=HTML).content.decode()
    assert '<meta http-equiv="refresh" content="6' in page
    Payment.objects.update(link_ends_at=timezone.now())
    answer = client.get(f"{receipt_url(order)}pay/code/", headers=HTML)
    assert (answer.status_code, answer["Location"]) == (303, receipt_url(order))


@in_wechat
def test_wechats_browser_is_told_to_scan_or_leave(at: StandIn, client: Client) -> None:
    order = long_order()
    client.force_login(owner_of(order))
    pay_url, code_url = (f"{receipt_url(order)}{it}" for it in ("pay/", "pay/code/"))
    answer = client.post(pay_url, headers={**HTML, "User-Agent": WECHAT})
    assert answer["Location"].endswith(code_url)
    page = client.get(code_url, headers={**HTML, "User-Agent": WECHAT}).content.decode()
    assert "手机浏览器" in page
    assert '<svg viewBox="' in page

    in_browser = {**HTML, "User-Agent": PHONE}
    assert client.get(code_url, headers=in_browser)["Location"] == receipt_url(order)
    assert client.post(pay_url, headers=in_browser)["Location"].startswith(at.url)


# --- The same reference with other parameters -----------------------------------------------------


def other_title(order: VoucherOrder) -> dict[str, Any]:
    Voucher.objects.update(title="Another title")
    return {}


def other_language(order: VoucherOrder) -> dict[str, Any]:
    Voucher.objects.update(title_en="Dinner for two")
    translation.activate("en")
    return {}


def other_shop(order: VoucherOrder) -> dict[str, Any]:
    moved = "https://moved.example"
    return {"return_url": f"{moved}/back/", "notify_url": f"{moved}/notify/"}


def other_network(order: VoucherOrder) -> dict[str, Any]:
    return {"client_address": "203.0.113.9"}


CHANGES = (other_title, other_language, other_shop, other_network)


@by_request
@pytest.mark.parametrize("client", [ClientKind.DESKTOP, ClientKind.PHONE])
@pytest.mark.parametrize("change", slow_after(1, CHANGES), ids=lambda it: it.__name__)
def test_lost_answer_and_a_change_still_lead_to_a_page(
    at: StandIn, change: Callable[[VoucherOrder], dict[str, Any]], client: ClientKind
) -> None:
    order = long_order()
    at.faults.append(Fault.LOST)
    with pytest.raises(ProviderUnavailable):
        click(order, client=client)
    with translation.override(translation.get_language()):
        how = change(order)
        url = click(order, client=client, **how)
        assert click(order, client=client, **how) == url
    at.visit(url)
    payment = Payment.objects.latest("pk")
    at.pay(payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"


@everywhere
def test_change_of_the_title_keeps_an_open_charge(at: StandIn) -> None:
    order = long_order()
    first = opened(at, order)
    other_title(order)
    assert opened(at, order) == first
    assert len(at.trades) == 1


@in_wechat
def test_money_for_both_references_is_noticed(at: StandIn) -> None:
    order = long_order()
    at.faults.append(Fault.LOST)
    with pytest.raises(ProviderUnavailable):
        click(order)
    other_title(order)
    click(order)
    for reference in list(at.trades):
        at.pay(reference)
    assert poll_payments(now=timezone.now() + dt.timedelta(minutes=1)) == 2
    states = Payment.objects.order_by("-settles").values_list("status", "settles")
    assert list(states) == [("paid", True), ("refunding", False)]
    assert status_of(order) == "paid"
    assert_conserved(order.seckill_voucher)


@everywhere
@pytest.mark.parametrize("client", slow_after(1, [ClientKind.DESKTOP, ClientKind.PHONE]))
def test_title_with_special_characters_can_be_paid(at: StandIn, client: ClientKind) -> None:
    order = long_order()
    Voucher.objects.update(title="双人餐/份 1+1=2 & <茶> 🍜")
    opened(at, order, client)
    assert len(at.trades) == 1


# --- A permanent refusal --------------------------------------------------------------------------


@by_request
def test_refusal_is_told_to_buyer_and_staff_once(at: StandIn, client: Client) -> None:
    order = long_order()
    client.force_login(owner_of(order))
    at.charge_refusal = REFUSALS[at.name]
    for language, words in {"en": "does not accept this payment", "zh-hans": "不接受"}.items():
        answer = client.post(f"{receipt_url(order)}pay/", headers={"Accept-Language": language})
        assert (answer.status_code, answer.json()["code"]) == (409, "payment_refused")
        assert words in answer.json()["message"]
    payment = Payment.objects.get()
    assert (payment.status, payment.problem) == (
        "refused", f"{at.name}: {REFUSALS[at.name]}",
    )  # fmt: skip
    now = timezone.now()
    assert poll_payments(now=now + dt.timedelta(minutes=5)) == 0
    assert refusals_on_today(now) == 1
    assert refusals_on_today(now + 2 * REFUSED_FOR) == 0

    at.charge_refusal = ""
    payment = opened(at, order)
    at.pay(payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"
    assert refusals_on_today(now) == 0
    payment.refresh_from_db()
    assert payment.problem == ""


def refusals_on_today(now: dt.datetime) -> int:
    rights = Rights(payments=True)
    today = read_today(now=now, rights=rights)
    assert len([it for it in alerts(today, rights=rights) if "拒绝" in it.text]) == bool(
        today.worries.refused
    )
    return today.worries.refused


@by_request
def test_refusal_of_a_link_made_anew_leaves_the_old_charge_open(at: StandIn) -> None:
    order = long_order()
    old = opened(at, order)
    at.let_links_end()
    at.charge_refusal = REFUSALS[at.name]
    with pytest.raises(ChargeRefused):
        click(order, now=timezone.now() + dt.timedelta(hours=3))
    at.pay(old.reference)
    notify(at, old)
    assert status_of(order) == "paid"


@in_wechat
def test_money_for_a_refused_charge_is_noticed(at: StandIn) -> None:
    order = long_order()
    at.charge_refusal = REFUSALS[at.name]
    with pytest.raises(ChargeRefused):
        click(order)
    payment = Payment.objects.get()
    at.new_trade(payment.reference, PRICE_CENTS)
    at.pay(payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"


def test_refused_click_leaves_the_charge_of_another_click(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, order = use_fake(settings), long_order()
    create, links = provider.create, list[str]()

    def refuse_after_another_click(charge: Charge) -> OpenedCharge:
        monkeypatch.setattr(provider, "create", create)
        links.append(click(order))
        raise ChargeRefused("by the test")

    monkeypatch.setattr(provider, "create", refuse_after_another_click)
    with pytest.raises(ChargeRefused):
        click(order)
    assert (Payment.objects.get().status, [click(order)]) == ("open", links)


@by_request
def test_busy_provider_is_no_refusal(at: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    order = long_order()
    answer = at.answer
    monkeypatch.setattr(at, "answer", lambda _: (429, *answer(_)[1:]))
    with pytest.raises(ProviderUnavailable) as caught:
        click(order)
    assert not isinstance(caught.value, ChargeRefused)
    assert refusals_on_today(timezone.now()) == 0
