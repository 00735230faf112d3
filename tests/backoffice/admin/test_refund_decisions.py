"""What staff decide about a payment that was refunded in part, disputed, or not refunded."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from orders.lifecycle.transitions import Actor
from orders.models import Payment
from orders.payments.refunds import REFUSED, refund_order
from tests.support.orders import make_sale
from tests.support.payments import (
    history,
    make_payment,
    make_unpaid_order,
    make_unpaid_purchase,
    pay,
    payment_status,
    status_of,
)
from tests.support.staff import said, staff_with, words
from tests.support.tiers import slow_after
from vouchers.catalogue.history import history_text

pytestmark = pytest.mark.django_db

BOTH = ["rest", "count"]


@pytest.fixture
def boss() -> Client:
    return staff_with(name="boss", is_owner=True)


def disputed() -> Payment:
    payment = pay(make_unpaid_order(make_sale()))
    Payment.objects.update(status="disputed")
    return payment


def order_url(payment: Payment) -> str:
    return f"/admin/orders/voucherorder/{payment.order_id}/change/"


def url(payment: Payment, decision: str) -> str:
    return f"/admin/orders/voucherorder/{payment.order_id}/payments/{payment.pk}/{decision}/"


def post(client: Client, payment: Payment, decision: str) -> Any:
    return client.post(url(payment, decision), {"reason": "as agreed"})


def test_order_page_offers_the_decisions_only_where_one_is_due(boss: Client) -> None:
    payment = disputed()
    page = boss.get(order_url(payment)).text
    assert all(url(payment, it) in page for it in BOTH)
    Payment.objects.update(status="paid")
    page = boss.get(order_url(payment)).text
    assert not any(url(payment, it) in page for it in BOTH)


def test_refund_that_is_refused_can_only_be_counted(boss: Client) -> None:
    payment = disputed()
    Payment.objects.update(status="refunding")
    assert url(payment, "count") not in boss.get(order_url(payment)).text
    Payment.objects.update(problem=REFUSED)
    page = boss.get(order_url(payment)).text
    assert [url(payment, it) in page for it in BOTH] == [False, True]
    post(boss, payment, "rest")
    assert said(post(boss, payment, "count")) == [
        "warning: Nothing was changed: the payment is refunding.",
        "success: The payment is now refunded.",
    ]


def test_order_page_shows_what_came_and_went_in_its_currency(boss: Client) -> None:
    payment = disputed()
    paid_in_yen = {"received_cents": 12_000, "received_currency": "JPY", "refunded_cents": 500}
    Payment.objects.update(**paid_in_yen)
    page = words(boss.get(order_url(payment)).text)
    assert "paid instead: 12,000 JPY gone back: 500 JPY" in page


def test_share_of_a_charge_is_shown_with_the_whole(boss: Client) -> None:
    orders = make_unpaid_purchase(make_sale(limit=4), 3)
    share = make_payment(orders[1])
    Payment.objects.filter(pk=share.pk).update(status="disputed")
    assert "¥80.00 of ¥240.00, paid together" in words(boss.get(order_url(share)).text)
    page = words(boss.get(url(share, "rest")).text)
    assert "part of one order in a payment of ¥240.00; the other orders keep theirs" in page
    assert "¥80.00 is refunded" in page

    page = boss.get(f"/admin/orders/payment/{share.pk}/change/").text
    assert "¥80.00 of ¥240.00" in words(page)
    assert all(f"/admin/orders/voucherorder/{it.pk}/change/" in page for it in orders)
    assert share.charge
    the_list = boss.get("/admin/orders/payment/", {"q": share.charge.reference})
    assert words(the_list.text).count("¥80.00 of ¥240.00") == 3


def test_counting_as_refunded_asks_for_a_reason_and_ends_the_order(boss: Client) -> None:
    payment = disputed()
    Payment.objects.update(refunded_cents=3_000)
    page = words(boss.get(url(payment, "count")).text)
    assert "what has not gone back (¥50.00) is settled otherwise" in page
    assert payment_status(payment) == "disputed"
    response = post(boss, payment, "count")
    assert (said(response), response["Location"]) == (
        ["success: The payment is now refunded."], order_url(payment)
    )  # fmt: skip
    assert (status_of(payment.order), payment_status(payment)) == ("refunded", "refunded")
    assert history(payment.order)[-2:] == ["refunding by staff", "refunded by system"]
    (entry,) = LogEntry.objects.all()
    assert history_text(entry) == "Payment counted as refunded. Reason: as agreed"


def test_rest_of_a_failed_refund_is_refunded(boss: Client) -> None:
    payment = pay(make_unpaid_order(make_sale()))
    refund_order(order_id=payment.order_id, by=Actor.staff(None), now=timezone.now())
    Payment.objects.update(status="refund_failed", refunded_cents=0)
    assert "¥80.00 is refunded" in words(boss.get(url(payment, "rest")).text)
    assert said(post(boss, payment, "rest")) == ["success: The payment is now refunded."]
    payment.refresh_from_db()
    assert (payment.status, payment.refunded_cents) == ("refunded", payment.amount_cents)


@pytest.mark.parametrize("decision", slow_after(1, BOTH))
@pytest.mark.parametrize("method", ["get", "post"])
def test_payment_in_another_state_is_not_changed(boss: Client, method: str, decision: str) -> None:
    payment = pay(make_unpaid_order(make_sale()))
    response = getattr(boss, method)(url(payment, decision), {"reason": "why not"})
    assert said(response) == ["warning: Nothing was changed: the payment is paid."]
    assert (status_of(payment.order), payment_status(payment)) == ("paid", "paid")


@pytest.mark.parametrize("decision", slow_after(1, BOTH))
def test_only_who_may_end_orders_decides(decision: str) -> None:
    helper = staff_with("view_voucherorder", "view_payment", "change_voucherorder")
    payment = disputed()
    assert url(payment, decision) not in helper.get(order_url(payment)).text
    assert post(helper, payment, decision).status_code == 403
    assert payment_status(payment) == "disputed"


def test_payment_of_another_order_is_not_found(boss: Client) -> None:
    payment, other = disputed(), make_unpaid_order(make_sale())
    address = url(payment, "count").replace(str(payment.order_id), str(other.pk))
    assert boss.post(address, {"reason": "why not"}).status_code == 404
