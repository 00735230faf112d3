"""Customers in the admin: who may see them, the list, one customer, and a waiting list by name."""

from __future__ import annotations

import logging

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backoffice.admin import customers as module
from backoffice.customers import PER_PAGE
from orders.models import OrderStatus, RuleRefusal, WaitingEntry
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale
from tests.support.staff import staff_with
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

LIST = "/admin/customers/"


@pytest.fixture
def operator(db: None) -> Client:
    return staff_with("see_customers", "view_voucherorder", "view_seckillvoucher")


def page_of(client: Client, url: str, **query: str | int) -> str:
    response = client.get(url, query)
    assert response.status_code == 200
    return response.content.decode()


def waiting(sale: SeckillVoucher, user: User, order_id: int, **fields: object) -> WaitingEntry:
    return WaitingEntry.objects.create(
        seckill_voucher=sale, user=user, order_id=order_id, joined_at=timezone.now(), **fields
    )


def waiting_url(sale: SeckillVoucher) -> str:
    return reverse("admin:sale-waiting", args=[sale.pk])


# --- The list -------------------------------------------------------------------------------------


def test_list_has_buyers_and_leads_to_them(operator: Client) -> None:
    buyer = make_buyer()
    make_order(make_sale(), buyer)
    page = page_of(operator, LIST)
    assert f"{LIST}{buyer.pk}/" in page
    assert buyer.username in page


def test_pages_follow_each_other_without_gaps(operator: Client) -> None:
    sale, buyers = make_sale(), make_buyers(PER_PAGE + 1)
    for buyer in buyers:
        make_order(sale, buyer)
    first = page_of(operator, LIST)
    second_oldest = buyers[1].pk
    assert f"before={second_oldest}" in first
    second = page_of(operator, LIST, before=second_oldest)
    assert buyers[0].username in second
    assert buyers[1].username not in second


@pytest.mark.parametrize("before", ["x", "9" * 30, "²", "-1"])
def test_made_up_page_is_answered(operator: Client, before: str) -> None:
    assert operator.get(LIST, {"before": before}).status_code == 200


def test_search_without_a_result_says_so(operator: Client) -> None:
    assert "No account has such a name" in page_of(operator, LIST, q="nobody")


# --- One customer ---------------------------------------------------------------------------------


def test_customer_page_shows_orders_and_refused_attempts(operator: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer, status=OrderStatus.PAID)
    refused = make_order(sale, buyer, status=OrderStatus.REFUSED, reason="sold_out", unit=2)
    RuleRefusal.objects.create(
        seckill_voucher=sale, rule="code", user=buyer, refused_at=timezone.now()
    )
    waiting(sale, buyer, 77)
    page = page_of(operator, f"{LIST}{buyer.pk}/")
    for text in (
        str(order.pk), str(refused.pk), "no vouchers were left", "no invitation code", "first: ",
        "without names",
    ):  # fmt: skip
        assert text in page


def test_unknown_customer_is_not_found(operator: Client) -> None:
    assert operator.get(f"{LIST}999999/").status_code == 404


def test_looking_at_a_customer_is_logged(
    operator: Client, caplog: pytest.LogCaptureFixture
) -> None:
    buyer = make_buyer()
    with caplog.at_level(logging.INFO, logger=module.__name__):
        page_of(operator, f"{LIST}{buyer.pk}/")
    assert f"looks at customer {buyer.pk}" in caplog.text


# --- A waiting list -------------------------------------------------------------------------------


def test_waiting_list_names_its_buyers_in_order() -> None:
    sale, (first, second, gone) = make_sale(), make_buyers(3)
    for number, buyer in enumerate((first, second), start=1):
        waiting(sale, buyer, number)
    waiting(sale, gone, 3, live=None, outcome="left")
    client = staff_with("view_seckillvoucher", "view_waitingentry")
    now = page_of(client, waiting_url(sale))
    assert now.index(first.username) < now.index(second.username)
    assert gone.username not in now
    assert gone.username in client.get(f"{waiting_url(sale)}?all").content.decode()
    assert LIST not in now, "this user may not see customers"


@pytest.mark.parametrize("permission", ["view_seckillvoucher", "view_waitingentry"])
def test_waiting_list_needs_both_permissions(permission: str) -> None:
    assert staff_with(permission).get(waiting_url(make_sale())).status_code == 403


def test_report_leads_to_the_waiting_list() -> None:
    sale = make_sale()
    client = staff_with("view_seckillvoucher", "view_waitingentry")
    report = reverse("admin:sale-report", args=[sale.pk])
    assert waiting_url(sale) not in page_of(client, report)
    waiting(sale, make_buyer(), 1)
    assert waiting_url(sale) in page_of(client, report)
