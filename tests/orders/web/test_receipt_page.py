"""The receipt as a page: what it says of each state, and what can be done without JavaScript."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone, translation

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.redemption import written_code
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderStatus, Payment, PaymentStatus, RefusalReason, VoucherOrder
from tests.support.browsers import browser_of
from tests.support.html_forms import fields_of, get_page, send
from tests.support.orders import make_buyers, make_order, make_sale, pending, reserved
from tests.support.payments import (
    let_time_run_out,
    make_payment,
    make_unpaid_order,
    pay,
    receipt_url,
    status_of,
)
from tests.support.tiers import slow_after
from vouchers.inventory.reservations import Release, release
from vouchers.templatetags.buyer_texts import RECEIPT
from vouchers.templatetags.seckill import qr

pytestmark = pytest.mark.django_db

CODE = "ABCD1234EFGH5678"


@pytest.fixture
def client(buyer: User) -> Client:
    """A browser in which the buyer is signed in, and that is asked for the forms' secret."""
    return browser_of(buyer, enforce_csrf_checks=True, headers={"Accept-Language": "en"})


def an_order(buyer: User, status: OrderStatus, *, reason: str = "", **changes: Any) -> VoucherOrder:
    order = make_order(make_sale(), buyer, status=status, reason=reason)
    VoucherOrder.objects.filter(pk=order.pk).update(**changes)
    order.refresh_from_db()
    return order


def page_of(client: Client, order: VoucherOrder) -> str:
    page = get_page(client, receipt_url(order))
    assert page.status_code == 200
    return str(page.text)


def words_of(page: str, element_id: str) -> str:
    """Return the text of an element that has no element of its own inside."""
    found = re.search(rf'<(\w+)[^>]* id="{element_id}"[^>]*>(.*?)</\1>', page, re.DOTALL)
    assert found, f"no {element_id}"
    return " ".join(unescape(found[2]).split())


def facts_of(page: str) -> dict[str, str]:
    """Return the receipt's facts by their names."""
    pairs = re.findall(r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", page, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", "", fact).split()) for name, fact in pairs}


def forms_in(page: str, order: VoucherOrder) -> set[str]:
    url = receipt_url(order)
    return {what for what in ("pay", "cancel", "refund") if fields_of(page, f"{url}{what}/")}


# --- What it says --------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("status", slow_after(2, OrderStatus))
def test_each_status_has_text_in_both_languages_and_no_inline_script(
    client: Client, buyer: User, status: OrderStatus, language: str
) -> None:
    reason = "sold_out" if status == "refused" else ""
    order = an_order(buyer, status, reason=reason, code=CODE)
    client.cookies["django_language"] = language
    page = page_of(client, order)
    assert len(page.encode()) < 50_000
    assert not re.search(r"\sstyle=|<style|\son\w+=", page)
    scripts = re.findall(r"<script[^>]*>", page)
    assert all(" src=" in tag or 'type="application/json"' in tag for tag in scripts)
    with translation.override(language):
        assert words_of(page, "heading") == str(RECEIPT["heading"][status])
        words = RECEIPT["reason"][order.reason] if order.reason else RECEIPT["text"][status]
        assert words_of(page, "text") == str(words)


@pytest.mark.parametrize("status", slow_after(1, OrderStatus))
def test_refund_is_spoken_of_only_while_there_can_be_one(
    client: Client, buyer: User, status: OrderStatus
) -> None:
    reason = "sold_out" if status == "refused" else ""
    facts = facts_of(page_of(client, an_order(buyer, status, reason=reason)))
    words = "refundable until used" if status in ("unpaid", "paid") else None
    assert facts.get("Refund") == words


@pytest.mark.parametrize("reason", slow_after(1, RefusalReason))
def test_refused_order_shows_arrival_and_no_charge(
    client: Client, buyer: User, reason: RefusalReason
) -> None:
    arrived = timezone.now().replace(microsecond=7_000)
    order = an_order(buyer, OrderStatus.REFUSED, reason=reason, accepted_at=arrived)
    page = page_of(client, order)
    assert words_of(page, "text") == str(RECEIPT["reason"][reason])
    assert "You were not charged" in words_of(page, "text")
    facts = facts_of(page)
    local = timezone.localtime(arrived)
    assert facts["Your request arrived"] == f"{local:%-d %b, %H:%M:%S}.007"
    assert facts["Charged"] == "¥0.00"
    assert facts.get("Vouchers left by then") == ("0 of 10" if reason == "sold_out" else None)


def test_refusal_known_to_ledger_only_has_a_page(client: Client, buyer: User) -> None:
    sale = make_sale()
    (token,) = reserved(sale, [buyer])
    (entry,) = pending(sale)
    release(sale_id=sale.pk, releases=[Release(entry, RefusalReason.INACTIVE_BUYER)])
    page = get_page(client, f"/vouchers/{sale.pk}/orders/{token.order_id}/").text
    assert "closed" in words_of(page, "text")
    facts = facts_of(page)
    assert facts["Charged"] == "¥0.00"
    assert "Your request arrived" not in facts


@pytest.mark.parametrize(
    ("status", "forms"),
    slow_after(
        2,
        [
            ("unpaid", {"pay", "cancel"}),
            ("paid", {"refund"}),
            *[(each, set()) for each in ("used", "cancelled", "expired", "refunding", "refunded")],
        ],
    ),
)
def test_each_status_offers_its_actions(
    client: Client, buyer: User, status: str, forms: set[str]
) -> None:
    code = CODE if status in ("paid", "used") else None
    order = an_order(buyer, OrderStatus(status), code=code)
    assert forms_in(page_of(client, order), order) == forms


@pytest.mark.parametrize(
    ("left_s", "terms", "offered", "shown"),
    slow_after(
        2,
        [
            (600, {}, True, False),  # the script shows it in time
            (110, {}, True, True),
            (110, {"extendable": False}, False, False),
        ],
    ),
)
def test_unpaid_order_offers_more_time(
    client: Client, buyer: User, left_s: int, terms: dict[str, Any], offered: bool, shown: bool
) -> None:
    order = make_unpaid_order(make_sale(**terms), [buyer])
    let_time_run_out(order, dt.timedelta(seconds=left_s))
    page = page_of(client, order)
    assert ("Take 10 more minutes" in page) is offered
    assert bool(re.search(r'id="extend"\s*>', page)) is shown


def test_more_time_leads_back_to_a_receipt_that_says_so(client: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    let_time_run_out(order)
    url = receipt_url(order)
    answer = send(client, page_of(client, order), f"{url}extend/")
    assert (answer.status_code, answer["Location"]) == (303, url)
    page = page_of(client, order)
    assert "· extended" in page
    assert "/extend/" not in page


def test_queued_order_shows_position_and_reloads(client: Client, buyer: User) -> None:
    sale = make_sale()
    *_, token = reserved(sale, [*make_buyers(2), buyer])
    page = get_page(client, f"/vouchers/{sale.pk}/orders/{token.order_id}/").text
    assert words_of(page, "heading") == "You are in the queue"
    assert words_of(page, "queue") == "In the queue: number 3"
    assert '<meta http-equiv="refresh" content="2">' in page
    assert "/pay/" not in page


def test_unpaid_order_shows_deadline_and_price(client: Client, buyer: User) -> None:
    pay_by = timezone.now().replace(microsecond=0) + dt.timedelta(minutes=14)
    at = pay_by - dt.timedelta(minutes=15)
    times: dict[str, Any] = {"accepted_at": at, "created_at": at, "pay_by": pay_by}
    page = page_of(client, an_order(buyer, OrderStatus.UNPAID, **times))
    assert f'data-pay-by-ms="{int(pay_by.timestamp()) * 1000}"' in page
    words = re.sub("</?time[^>]*>", "", page)
    assert f"Pay by {timezone.localtime(pay_by):%-d %b, %H:%M}" in words
    assert "Pay ¥80.00" in page
    assert CODE not in page


@pytest.mark.parametrize(
    ("changes", "shown", "forms"),
    slow_after(
        2,
        [
            ({}, "confirming", set()),
            ({"silent_since": 0}, "silent", set()),
            ({"returned_at": -60}, "unconfirmed", {"pay", "cancel"}),
            ({"found_open_at": 2}, "not_paid", {"pay", "cancel"}),
            ({"status": "closed"}, "not_paid", {"pay", "cancel"}),
        ],
    ),
)
def test_buyer_back_from_the_provider_sees_the_payment(
    client: Client, buyer: User, changes: dict[str, Any], shown: str, forms: set[str]
) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    payment, now = make_payment(order), timezone.now()
    moments = {
        name: now + dt.timedelta(seconds=it) if isinstance(it, int) else it
        for name, it in {"returned_at": 0, **changes}.items()
    }
    Payment.objects.filter(pk=payment.pk).update(**moments)
    page = page_of(client, order)
    with translation.override("en"):
        assert words_of(page, "heading") == str(RECEIPT["heading"][shown])
        assert words_of(page, "text") == unescape(str(RECEIPT["text"][shown]))
    assert forms_in(page, order) == forms
    assert ('http-equiv="refresh"' in page) == (not forms)


def test_cancelled_order_says_that_money_would_go_back(client: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    payment = make_payment(order)
    cancel_order(order_id=order.pk, by=SYSTEM, now=timezone.now())
    assert "your money is refunded" in words_of(page_of(client, order), "late")
    Payment.objects.filter(pk=payment.pk).update(returned_at=timezone.now())
    assert "you get a refund" in words_of(page_of(client, order), "late")


def test_unpaid_order_without_deadline_can_be_paid(client: Client, buyer: User) -> None:
    order = an_order(buyer, OrderStatus.UNPAID, pay_by=None)
    page = page_of(client, order)
    assert forms_in(page, order) == {"pay", "cancel"}
    assert "Pay by" not in page


def test_overdue_order_offers_nothing(client: Client, buyer: User) -> None:
    late = timezone.now() - dt.timedelta(seconds=1)
    order = an_order(buyer, OrderStatus.UNPAID, pay_by=late)
    page = page_of(client, order)
    assert words_of(page, "heading") == "The time to pay has run out"
    assert forms_in(page, order) == set()


def test_paid_order_shows_code_and_qr_picture(client: Client, buyer: User) -> None:
    page = page_of(client, an_order(buyer, OrderStatus.PAID, code=CODE))
    assert words_of(page, "code") == "ABCD-1234-EFGH-5678"
    assert qr("http://testserver/staff/redeem/#code=ABCD-1234-EFGH-5678") in page


def test_used_voucher_shows_code_without_picture(client: Client, buyer: User) -> None:
    page = page_of(client, an_order(buyer, OrderStatus.USED, code=CODE))
    assert words_of(page, "code") == "ABCD-1234-EFGH-5678"
    assert 'class="qr"' not in page


@pytest.mark.parametrize("status", ["refunding", "refunded"])
def test_invalid_code_is_not_shown(client: Client, buyer: User, status: str) -> None:
    page = page_of(client, an_order(buyer, OrderStatus(status), code=CODE))
    assert "ABCD" not in page


def test_non_refundable_voucher_offers_no_refund(client: Client, buyer: User) -> None:
    order = make_order(make_sale(refundable=False), buyer, status=OrderStatus.PAID)
    assert forms_in(page_of(client, order), order) == set()


@pytest.mark.parametrize("rebuy", [True, False])
def test_cancel_form_says_whether_rebuying_is_allowed(
    client: Client, buyer: User, rebuy: bool
) -> None:
    order = make_order(make_sale(rebuy=rebuy), buyer)
    said = "You cannot order again in this sale." in page_of(client, order)
    assert said is not rebuy


@pytest.mark.parametrize(
    ("status", "state", "words"),
    slow_after(
        2,
        [
            ("expired", "refunding", "arrived too late for this order. It is being refunded"),
            ("cancelled", "refunded", "arrived too late for this order. It has been refunded"),
            ("paid", "refunding", "The extra payment is being refunded"),
            ("used", "refunded", "The extra payment has been refunded"),
        ],
    ),
)
def test_late_payment_is_shown(
    client: Client, buyer: User, status: str, state: str, words: str
) -> None:
    order = an_order(buyer, OrderStatus(status), code=CODE if status == "paid" else None)
    assert words_of(page_of(client, order), "late") == ""
    Payment.objects.create(
        order=order, reference="r", provider="sandbox", amount_cents=1, status=PaymentStatus(state)
    )
    assert words in words_of(page_of(client, order), "late")


# --- What is done without JavaScript -------------------------------------------------------------


def test_buyer_pays_without_javascript(client: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    answer = send(client, page_of(client, order), f"{receipt_url(order)}pay/")
    assert answer.status_code == 303
    assert answer["Location"].startswith("http://testserver/sandbox/")
    assert status_of(order) == OrderStatus.UNPAID
    pay(order)
    order.refresh_from_db()
    assert order.code
    assert written_code(order.code) in page_of(client, order)


def test_buyer_cancels_without_javascript(client: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    page = page_of(client, order)
    asking = re.search(r'<details class="confirm">(.*?)</details>', page, re.DOTALL)
    assert asking
    assert "/cancel/" in asking[1]
    answer = send(client, page, f"{receipt_url(order)}cancel/")
    assert (answer.status_code, answer["Location"]) == (303, receipt_url(order))
    assert words_of(page_of(client, order), "heading") == "Cancelled"


def test_buyer_refunds_without_javascript(client: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    pay(order)
    answer = send(client, page_of(client, order), f"{receipt_url(order)}refund/")
    assert (answer.status_code, answer["Location"]) == (303, receipt_url(order))
    assert words_of(page_of(client, order), "heading") in ("Refund on its way", "Refunded")


@pytest.mark.parametrize("what", slow_after(1, ["pay", "cancel", "refund"]))
def test_cross_site_form_changes_nothing(client: Client, buyer: User, what: str) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    if what == "refund":
        pay(order)
    before = status_of(order)
    assert client.post(f"{receipt_url(order)}{what}/").status_code == 403
    assert status_of(order) == before


def test_free_voucher_is_paid_at_once(client: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    VoucherOrder.objects.filter(pk=order.pk).update(price_cents=0)
    answer = send(client, page_of(client, order), f"{receipt_url(order)}pay/")
    assert answer["Location"] == f"http://testserver{receipt_url(order)}return/"
    assert words_of(page_of(client, order), "heading") == "Paid"
