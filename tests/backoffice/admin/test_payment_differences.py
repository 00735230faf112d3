"""The admin's page of payment differences: open ones first, and read-only."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from orders.models import Payment, SettlementDifference
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, pay

pytestmark = pytest.mark.django_db

LIST = "/admin/orders/settlementdifference/"


def a_difference(reference: str, **changes: object) -> SettlementDifference:
    facts = {
        "provider": "stripe",
        "day": "2026-11-11",
        "direction": "payment",
        "kind": "missing_here",
        "their_cents": 123_450,
        "their_currency": "CNY",
        "found_at": timezone.now(),
    }
    return SettlementDifference.objects.create(reference=reference, **{**facts, **changes})


def test_list_starts_with_open_differences(shop: Client) -> None:
    a_difference("still-open")
    a_difference("resolved-one", resolved_at=timezone.now())
    page = shop.get(LIST).text
    assert "still-open" in page
    assert "resolved-one" not in page
    assert "the provider lists it, we do not" in page
    assert "¥1,234.50" in page
    assert "待处理" in shop.get(LIST, headers={"accept-language": "zh-hans"}).text
    assert "resolved-one" in shop.get(f"{LIST}?open=no").text
    assert "still-open" in shop.get(f"{LIST}?open=all").text


def test_foreign_currency_is_not_shown_as_ours(shop: Client) -> None:
    a_difference("dollars", their_currency="USD")
    page = shop.get(LIST).text
    assert "1,234.50 USD" in page
    assert "¥1,234.50" not in page


def test_amounts_are_shown_in_the_currency_of_the_payment(shop: Client) -> None:
    payment = pay(make_unpaid_order(make_sale()))
    Payment.objects.update(received_cents=12_000, received_currency="JPY")
    a_difference("yen", payment=payment, our_cents=12_000, their_cents=5, their_currency="KRW")
    page = shop.get(LIST).text
    assert "12,000 JPY" in page
    assert "5 KRW" in page
    assert "12,000 JPY" in shop.get(f"/admin/orders/payment/{payment.pk}/change/").text


def test_difference_leads_to_its_order(shop: Client) -> None:
    payment = pay(make_unpaid_order(make_sale()))
    found = a_difference(payment.reference, payment=payment, our_cents=payment.amount_cents)
    page = shop.get(f"{LIST}{found.pk}/change/").text
    assert f"/admin/orders/voucherorder/{payment.order_id}/change/" in page
