"""The whole life of a payment at each provider, against a stand-in that fails in every way."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.db import connection
from django.test import Client
from django.utils import timezone

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.transitions import Actor
from orders.models import (
    EventCode,
    HandledNotification,
    OrderEvent,
    Payment,
    ProviderLine,
    SettlementRun,
)
from orders.payments import providers
from orders.payments.providers import BadNotification, ClientKind, ProviderUnavailable
from orders.payments.refunds import REFUSED, finish_refunds, refund_order
from orders.payments.service import (
    LATE,
    WRONG_AMOUNT,
    poll_payments,
    take_notification,
)
from orders.payments.settlement import settle_day
from seckill_site.http_client import exchange
from tests.support.inspection import assert_conserved
from tests.support.orders import PRICE_CENTS, both_at, make_sale
from tests.support.payments import (
    expire_all,
    expire_pay_by,
    history,
    make_unpaid_order,
    notify_url,
    owner_of,
    payment_status,
    receipt_url,
    status_of,
)
from tests.support.stand_ins.lives import (
    charged,
    each_provider,
    everywhere,
    notify,
    opened,
    over_http,
    paid,
    refunded_everywhere,
)
from tests.support.stand_ins.server import Fault, RefundMode, StandIn
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db

STAFF = Actor.staff(None)
AN_HOUR = dt.timedelta(hours=1)
WRONG = {"amount": {"amount_cents": PRICE_CENTS - 100}, "currency": {"currency": "USD"}}
UNANSWERED = [Fault.SILENCE, Fault.ERROR_500, Fault.LOST, Fault.HALF, Fault.GARBAGE]


# --- As it should be ------------------------------------------------------------------------------


@each_provider
def test_notification_pays_and_refund_returns_all(at: StandIn) -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = paid(at, order)
    payment.refresh_from_db()
    assert payment.paid_at is not None
    assert payment.provider_reference
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    assert history(order) == [
        "unpaid by system", "paid by provider", "refunding by staff", "refunded by system"
    ]  # fmt: skip
    assert refunded_everywhere(at, payment)
    assert_conserved(sale)


@everywhere
def test_query_finds_a_payment_never_reported(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    payment = opened(at, order)
    assert poll_payments(now=timezone.now() + AN_HOUR / 60) == 1
    assert (status_of(order), payment_status(payment)) == ("unpaid", "open")
    at.pay(payment.reference)
    poll_payments(now=timezone.now() + AN_HOUR)
    assert (status_of(order), payment_status(payment)) == ("paid", "paid")


@everywhere
def test_second_click_leads_to_the_same_charge(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    first = opened(at, order)
    assert opened(at, order) == first
    assert len(at.trades) == 1


@everywhere
def test_order_not_paid_in_time_expires(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    opened(at, order)
    assert expire_all(clocks=both_at(expire_pay_by(order))) == 1
    assert status_of(order) == "expired"


@each_provider
def test_webhook_acknowledges_over_http(at: StandIn, client: Client) -> None:
    order, payment = charged(at)
    headers, body = at.notification(payment.reference, at_s=timezone.now().timestamp())
    kind = headers.pop("Content-Type", "application/json")
    for _ in range(2):
        answer = client.post(notify_url(at.name), body, content_type=kind, headers=headers)
        assert answer.status_code == 200
        assert answer.content.decode() == providers.provider_named(at.name).acknowledgement
    assert status_of(order) == "paid"


@over_http
def test_phone_gets_its_own_page(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    desk = opened(at, order)
    phone = opened(at, order, ClientKind.PHONE)
    by_client = providers.provider_named(at.name).by_client
    assert (desk != phone) == by_client
    at.pay(phone.reference)
    notify(at, phone)
    assert status_of(order) == "paid"


# --- Notifications: forged, old, repeated, out of order -------------------------------------------


@each_provider
def test_forged_notification_is_refused(at: StandIn) -> None:
    order, payment = charged(at)
    with pytest.raises(BadNotification):
        notify(at, payment, forged=True)
    assert status_of(order) == "unpaid"


@over_http
@pytest.mark.parametrize("late_s", slow_after(1, [27 * 3600, -3600]))
def test_notification_of_another_time_is_refused(at: StandIn, late_s: float) -> None:
    order, payment = charged(at)
    with pytest.raises(BadNotification, match="too far from ours"):
        notify(at, payment, late_s=late_s)
    assert status_of(order) == "unpaid"


@over_http
def test_changed_notification_is_refused(at: StandIn) -> None:
    order, payment = charged(at)
    now = timezone.now()
    headers, body = at.notification(payment.reference, at_s=now.timestamp())
    for other in (body[:-9], body + b" ", b"", b"\xff", body.replace(b"1", b"2", 1)):
        with pytest.raises(BadNotification):
            take_notification(provider_name=at.name, headers=headers, body=other, now=now)
    with pytest.raises(BadNotification):
        take_notification(provider_name=at.name, headers={}, body=body[:20], now=now)
    assert status_of(order) == "unpaid"


@over_http
def test_replayed_notification_is_handled_once(
    at: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, payment = charged(at)
    notify(at, payment, identity="n-1")
    assert HandledNotification.objects.get().notification_id == "n-1"
    monkeypatch.setattr("orders.payments.service.take_statement", pytest.fail)
    notify(at, payment, identity="n-1")


@over_http
def test_unhandled_notification_is_handled_when_repeated(at: StandIn) -> None:
    order, payment = charged(at)
    Payment.objects.filter(pk=payment.pk).update(reference="not-yet")
    with pytest.raises(BadNotification, match="no payment"):
        notify(at, payment)
    Payment.objects.filter(pk=payment.pk).update(reference=payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"


@everywhere
def test_notifications_out_of_order_pay_once(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    payment = opened(at, order)
    at.end(payment.reference)
    notify(at, payment, identity="closed")
    assert payment_status(payment) == "closed"
    at.pay(payment.reference)
    notify(at, payment, identity="paid")
    notify(at, payment, identity="paid again")
    assert (status_of(order), payment_status(payment)) == ("paid", "paid")
    assert history(order) == ["unpaid by system", "paid by provider"]


@everywhere
def test_late_payment_goes_back(at: StandIn) -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = opened(at, order)
    cancel_order(order_id=order.pk, by=STAFF, now=timezone.now())
    at.pay(payment.reference)
    notify(at, payment)
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)
    assert (status_of(order), payment.problem) == ("cancelled", LATE)
    assert_conserved(sale)


# --- Another amount, another currency -------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("wrong", slow_after(1, WRONG))
@pytest.mark.parametrize("by", ["notification", "query"])
def test_wrong_payment_is_refunded_as_received(at: StandIn, wrong: str, by: str) -> None:
    if (at.name, wrong) == ("sandbox", "currency"):
        pytest.skip("the sandbox has one currency")
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = opened(at, order)
    at.pay(payment.reference, **WRONG[wrong])  # type: ignore[arg-type]
    received = at.trades[payment.reference]
    if by == "query":
        poll_payments(now=timezone.now() + AN_HOUR)
    else:
        notify(at, payment)
        notify(at, payment, identity="again")
    payment.refresh_from_db()
    assert (status_of(order), payment.status, payment.settles) == ("unpaid", "refunding", False)
    assert (payment.received_cents, payment.received_currency) == (
        received.amount_cents, received.currency,
    )  # fmt: skip
    assert payment.problem == WRONG_AMOUNT
    assert OrderEvent.objects.filter(order=order, code=EventCode.WRONG_AMOUNT).count() == 1
    assert finish_refunds(now=timezone.now() + 2 * AN_HOUR) == 1
    assert refunded_everywhere(at, payment)

    again = opened(at, order)
    assert again != payment
    at.pay(again.reference)
    notify(at, again)
    assert status_of(order) == "paid", "the order can still be paid"
    assert_conserved(sale)


@over_http
def test_buyer_gets_a_mail_about_a_wrong_payment(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    owner = owner_of(order)
    owner.email = "buyer@shop.example"
    owner.save()
    EmailAddress.objects.create(user=owner, email=owner.email, verified=True, primary=True)
    tell_buyers(now=timezone.now())
    mail.outbox.clear()
    payment = opened(at, order)
    at.pay(payment.reference, amount_cents=PRICE_CENTS + 1)
    notify(at, payment)
    assert tell_buyers(now=timezone.now()) == 1
    assert "退款" in str(mail.outbox[0].body)


@everywhere
def test_unknown_reference_changes_nothing(at: StandIn) -> None:
    order, payment = charged(at)
    Payment.objects.update(reference="another")
    with pytest.raises(BadNotification, match="no payment"):
        notify(at, payment)
    assert status_of(order) == "unpaid"


# --- A provider that fails ------------------------------------------------------------------------


@over_http
@pytest.mark.parametrize("fault", slow_after(1, UNANSWERED), ids=lambda it: it.value)
def test_failed_opening_is_repeated_without_a_second_charge(at: StandIn, fault: Fault) -> None:
    if not at.repeats_charge:
        pytest.skip("it opens a charge without a request")
    order = make_unpaid_order(make_sale())
    at.faults.append(fault)
    with pytest.raises(ProviderUnavailable):
        opened(at, order)
    payment = opened(at, order)
    assert len(at.trades) == 1
    assert len(at.requests) == 2
    at.pay(payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"


@over_http
@pytest.mark.parametrize(
    "fault", slow_after(1, [*UNANSWERED, Fault.FORGED]), ids=lambda it: it.value
)
def test_failed_query_pays_nothing_until_repeated(at: StandIn, fault: Fault) -> None:
    order, payment = charged(at)
    at.faults.append(fault)
    now = timezone.now() + AN_HOUR / 60
    assert poll_payments(now=now) == 1
    assert (status_of(order), payment_status(payment)) == ("unpaid", "open")
    payment.refresh_from_db()
    assert payment.silent_since == now
    poll_payments(now=now + AN_HOUR)
    assert status_of(order) == "paid"


@pytest.mark.slow
@over_http
@pytest.mark.parametrize("fault", UNANSWERED, ids=lambda it: it.value)
def test_failed_refund_is_repeated_and_moves_money_once(at: StandIn, fault: Fault) -> None:
    order = make_unpaid_order(make_sale())
    payment = paid(at, order)
    refund_order_at, passing = timezone.now(), list[Fault | None]()
    at.faults.append(fault)
    refund_order(order_id=order.pk, by=STAFF, now=refund_order_at)
    while payment_status(payment) == "refunding":  # a later request of the refund fails each time
        passing.append(None)
        assert len(passing) < 5
        at.faults.clear()
        at.faults.extend([*passing, fault])
        finish_refunds(now=refund_order_at + len(passing) * AN_HOUR)
    assert passing
    assert refunded_everywhere(at, payment)
    assert status_of(order) == "refunded"


@over_http
def test_pending_refund_ends_when_the_money_is_back(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    payment = paid(at, order)
    at.refund_mode = RefundMode.PENDING
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 0
    assert (status_of(order), payment_status(payment)) == ("refunding", "refunding")
    at.finish_refund(payment.reference)
    assert finish_refunds(now=timezone.now() + 2 * AN_HOUR) == 1
    assert refunded_everywhere(at, payment)


@pytest.mark.slow
@over_http
def test_refused_refund_is_named_until_it_succeeds(at: StandIn) -> None:
    order = make_unpaid_order(make_sale())
    payment = paid(at, order)
    at.refund_mode = RefundMode.REFUSED
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    payment.refresh_from_db()
    assert (status_of(order), payment.status, payment.problem) == (
        "refunding", "refunding", REFUSED,
    )  # fmt: skip
    at.refund_mode = RefundMode.DONE
    at.let_an_hour_pass()
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert refunded_everywhere(at, payment)
    assert payment.problem == ""


@pytest.mark.slow
@over_http
def test_no_secret_is_logged(at: StandIn, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    order = make_unpaid_order(make_sale())
    payment = paid(at, order)
    at.faults.extend([Fault.ERROR_500, Fault.GARBAGE])
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    finish_refunds(now=timezone.now() + AN_HOUR)
    finish_refunds(now=timezone.now() + 2 * AN_HOUR)
    assert refunded_everywhere(at, payment)
    names = ("SECRET_KEY", "WEBHOOK_SECRETS", "PRIVATE_KEY", "API_V3_KEY")
    for company in ("STRIPE", "ALIPAY", "WECHAT"):
        for name in names:
            value = getattr(settings, f"SECKILL_{company}_{name}", "")
            for secret in value if isinstance(value, list) else [value]:
                assert not secret or secret not in caplog.text


@over_http
@pytest.mark.django_db(transaction=True)
def test_no_call_is_made_inside_a_transaction(at: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = list[bool]()

    def noted(*args: Any, **options: Any) -> Any:
        inside.append(connection.in_atomic_block)
        return exchange(*args, **options)

    monkeypatch.setattr("orders.payments.http_calls.exchange", noted)
    order, _ = charged(at)
    poll_payments(now=timezone.now() + AN_HOUR)
    assert status_of(order) == "paid"
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    settle_day(provider_name=at.name, day=timezone.localdate(), now=timezone.now())
    assert len(inside) >= 3
    assert not any(inside)


# --- Where the buyer goes -------------------------------------------------------------------------


@over_http
def test_pay_button_leads_to_the_provider(at: StandIn, client: Client) -> None:
    order = make_unpaid_order(make_sale())
    client.force_login(owner_of(order))
    answer = client.post(f"{receipt_url(order)}pay/", headers={"Accept": "text/html"})
    assert answer.status_code == 303
    if at.name == "wechat":
        assert urlsplit(answer["Location"]).path == f"{receipt_url(order)}pay/code/"
        page = client.get(f"{receipt_url(order)}pay/code/", headers={"Accept": "text/html"})
        assert '<svg viewBox="' in page.content.decode()
        assert "请用微信扫描二维码" in page.content.decode()
    else:
        assert answer["Location"].startswith(at.url)
    at.visit(Payment.objects.get().pay_url)
    assert Payment.objects.get().reference in at.trades


# --- Settlement -----------------------------------------------------------------------------------


@pytest.mark.slow
@everywhere
@pytest.mark.usefixtures("one_day")
def test_list_of_the_day_agrees_with_ours(at: StandIn) -> None:
    paid(at, make_unpaid_order(make_sale()))
    order = make_unpaid_order(make_sale())
    payment = paid(at, order)
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    assert payment_status(payment) == "refunded"
    assert settle_day(provider_name=at.name, day=timezone.localdate(), now=timezone.now()) == 0
    lines = ProviderLine.objects.values_list("direction", "amount_cents", "currency")
    assert sorted(lines) == [
        ("payment", PRICE_CENTS, "CNY"),
        ("payment", PRICE_CENTS, "CNY"),
        ("refund", PRICE_CENTS, "CNY"),
    ]


@pytest.mark.slow
@over_http
@pytest.mark.parametrize("fault", [*UNANSWERED, Fault.FORGED], ids=lambda it: it.value)
@pytest.mark.parametrize("after", [0, 1])
def test_list_that_was_cut_off_is_not_compared(at: StandIn, fault: Fault, after: int) -> None:
    if fault is Fault.FORGED and at.name != "wechat":
        pytest.skip("TLS vouches for this list")
    for _ in range(2):
        paid(at, make_unpaid_order(make_sale()))
    at.faults.extend([None] * after + [fault])
    with pytest.raises(ProviderUnavailable):
        settle_day(provider_name=at.name, day=timezone.localdate(), now=timezone.now())
    assert not SettlementRun.objects.exists()
