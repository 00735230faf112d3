"""The export of orders from the admin: the filtered list, or the selected orders."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backoffice import order_export
from orders.models import OrderStatus, VoucherOrder
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale
from tests.support.staff import staff_with

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

LIST = "/admin/orders/voucherorder/"
EXPORT = f"{LIST}export/"


@pytest.fixture
def operator() -> Client:
    return staff_with("view_voucherorder", "export_voucherorder", "redeem_voucherorder")


def rows(response: Any) -> list[list[str]]:
    assert response.status_code == 200, response
    assert response.streaming
    text = b"".join(response.streaming_content).decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline="")))[1:]


def ids(response: Any) -> list[int]:
    return [int(row[0]) for row in rows(response)]


def shown(client: Client, query: str) -> list[int]:
    result = client.get(f"{LIST}?{query}&all=").context["cl"].result_list
    return sorted(order.pk for order in result)


def act(client: Client, orders: list[VoucherOrder], query: str = "", **more: str) -> Any:
    selected = [order.pk for order in orders]
    data = {"action": "export_selected", "_selected_action": selected, **more}
    return client.post(f"{LIST}?{query}", data)


def test_order_list_has_an_export_button(operator: Client) -> None:
    assert reverse("admin:orders_voucherorder_export") == EXPORT
    page = operator.get(LIST, {"status__exact": "paid"}).text
    assert f'href="{EXPORT}?status__exact=paid"' in page
    assert "Export these orders (CSV)" in page


@pytest.mark.parametrize(
    "query", ["", "status__exact=paid", "q=hotpot", "status__exact=unpaid&o=-2", "q=nothing&p=1"]
)
def test_export_matches_the_filtered_list(
    operator: Client, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_export, "CHUNK", 2)
    sale = make_sale(loaded=False)
    states = [OrderStatus.PAID, OrderStatus.UNPAID, OrderStatus.CANCELLED] * 3
    for buyer, status in zip(make_buyers(9), states, strict=True):
        make_order(sale, buyer, status=status)
    assert ids(operator.get(f"{EXPORT}?{query}")) == shown(operator, query)


def test_export_covers_all_pages_of_the_list(operator: Client) -> None:
    sale = make_sale(loaded=False)
    for buyer in make_buyers(105):
        make_order(sale, buyer)
    assert len(ids(operator.get(EXPORT))) == 105


def test_selected_orders_are_exported(operator: Client) -> None:
    sale = make_sale(loaded=False)
    first, _second, third = (make_order(sale, buyer) for buyer in make_buyers(3))
    assert ids(act(operator, [third, first])) == sorted([first.pk, third.pk])


def test_all_filtered_orders_can_be_selected(operator: Client) -> None:
    sale = make_sale(loaded=False)
    first, second, _third = (make_order(sale, buyer) for buyer in make_buyers(3))
    VoucherOrder.objects.filter(pk__in=[first.pk, second.pk]).update(status=OrderStatus.PAID)
    response = act(operator, [first], "status__exact=paid", select_across="1")
    assert ids(response) == sorted([first.pk, second.pk])


@pytest.mark.usefixtures("one_day")
def test_export_file_is_dated_and_not_cached(operator: Client) -> None:
    response = operator.get(EXPORT)
    today = f"{timezone.localtime():%Y-%m-%d}"
    assert response["Content-Disposition"] == f'attachment; filename="orders-{today}.csv"'
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert "no-store" in response["Cache-Control"]
    assert response["X-Accel-Buffering"] == "no"
    assert rows(response) == []


def test_full_codes_need_redeem_permission() -> None:
    make_order(make_sale(loaded=False), make_buyer(), status=OrderStatus.PAID)
    VoucherOrder.objects.update(code="0123456789ABCDEF")
    clerk = staff_with("view_voucherorder", "export_voucherorder")
    assert rows(clerk.get(EXPORT))[0][12] == "****-****-****-CDEF"
    User.objects.get(username="clerk").user_permissions.add(
        Permission.objects.get(codename="redeem_voucherorder")
    )
    assert rows(clerk.get(EXPORT))[0][12] == "0123-4567-89AB-CDEF"


@pytest.mark.parametrize("permissions", [["view_voucherorder"], ["export_voucherorder"]])
def test_export_needs_export_and_view_permission(permissions: list[str]) -> None:
    order = make_order(make_sale(loaded=False), make_buyer())
    clerk = staff_with(*permissions)
    assert clerk.get(EXPORT).status_code == 403
    assert not act(clerk, [order]).streaming
    assert EXPORT not in clerk.get(LIST).text


def test_export_of_unknown_query_redirects_to_the_list(operator: Client) -> None:
    response = operator.get(EXPORT, {"colour": "red"})
    assert (response.status_code, response["Location"]) == (302, f"{LIST}?colour=red")


def test_forbidden_lookup_returns_400(operator: Client) -> None:
    assert operator.get(EXPORT, {"user__password__startswith": "p"}).status_code == 400
