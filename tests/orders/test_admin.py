"""Orders in the admin: found by id, buyer and voucher, filtered, and never typed."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from orders.models import OrderStatus, VoucherOrder
from tests.orders.looking import rows
from tests.orders.making import make_buyer, make_buyers, make_order, make_sale

pytestmark = pytest.mark.django_db

LIST = "/admin/orders/voucherorder/"


@pytest.fixture
def staff(client: Client) -> Client:
    """The client of a superuser: who may do everything may not do this either."""
    client.force_login(
        User.objects.create(username="boss", password="!", is_staff=True, is_superuser=True)
    )
    return client


def found(staff: Client, **query: object) -> list[int]:
    response = staff.get(LIST, query)
    assert response.status_code == 200, response
    return sorted(order.pk for order in response.context["cl"].result_list)


def change_url(order: VoucherOrder, what: str = "change") -> str:
    return f"{LIST}{order.pk}/{what}/"


def test_orders_are_listed_with_buyer_and_state(staff: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer)
    page = staff.get(LIST).text
    assert str(order.pk) in page
    assert buyer.username in page
    assert sale.voucher.title in page


def test_an_order_without_a_buyer_is_listed_and_shown(staff: Client) -> None:
    order = make_order(make_sale(), None, status=OrderStatus.REFUSED, reason="inactive_buyer")
    assert found(staff) == [order.pk]
    assert staff.get(change_url(order)).status_code == 200


def test_an_order_is_found_by_its_id_and_by_nothing_near_it(staff: Client) -> None:
    sale, (first, second) = make_sale(), make_buyers(2)
    order = make_order(sale, first, order_id=2**53 + 1)
    make_order(sale, second, order_id=2**53 + 2)
    assert found(staff, q=str(order.pk)) == [order.pk]
    assert found(staff, q=str(order.pk)[:-1]) == []


def test_orders_are_found_by_the_buyers_name_and_by_the_vouchers_title(staff: Client) -> None:
    first, second = (make_order(make_sale(), make_buyer()) for _ in range(2))
    assert first.user
    assert found(staff, q=first.user.username) == [first.pk]
    assert found(staff, q=second.seckill_voucher.voucher.title.split(" ")[-1]) == [second.pk]


@pytest.mark.parametrize("text", ["nobody", "9" * 40, "-1", "1.5", "٣", "%", "_", "'", "\0", "é🙂"])
def test_a_search_for_anything_is_answered(staff: Client, text: str) -> None:
    make_order(make_sale(), make_buyer())
    assert len(found(staff, q=text)) <= 1


def test_orders_are_filtered_by_status_reason_and_sale(staff: Client) -> None:
    sale, other, buyers = make_sale(), make_sale(), make_buyers(4)
    paid = make_order(sale, buyers[0], status=OrderStatus.PAID)
    sold_out = make_order(sale, buyers[1], status=OrderStatus.REFUSED, reason="sold_out")
    failed = make_order(other, buyers[2], status=OrderStatus.REFUSED, reason="failed")
    assert found(staff, status__exact="paid") == [paid.pk]
    assert found(staff, status__exact="refused") == sorted([sold_out.pk, failed.pk])
    assert found(staff, reason__exact="failed") == [failed.pk]
    assert found(staff, seckill_voucher__id__exact=sale.pk) == sorted([paid.pk, sold_out.pk])
    assert found(staff, seckill_voucher__id__exact=sale.pk, status__exact="refused") == [
        sold_out.pk
    ]


def test_the_sale_filter_offers_only_sales_with_orders(staff: Client) -> None:
    sale, other, _ = make_sale(), make_sale(), make_sale()
    make_order(sale, make_buyer())
    make_order(other, make_buyer())
    (spec,) = (
        spec
        for spec in staff.get(LIST).context["cl"].filter_specs
        if getattr(spec, "field_path", "") == "seckill_voucher"
    )
    assert sorted(pk for pk, _ in spec.lookup_choices) == [sale.pk, other.pk]


def test_fifty_orders_take_as_many_queries_as_two(staff: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            found(staff)
        return len(captured)

    sales = [make_sale(loaded=False) for _ in range(2)]
    for sale, buyer in zip(sales, make_buyers(2), strict=True):
        make_order(sale, buyer)
    two = queries()
    for buyer in make_buyers(48):
        make_order(sales[0], buyer)
    assert queries() == two


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("what", ["add", "delete"])
def test_nobody_adds_or_deletes_an_order(staff: Client, method: str, what: str) -> None:
    order = make_order(make_sale(), make_buyer())
    before = rows()
    url = f"{LIST}add/" if what == "add" else change_url(order, "delete")
    response = getattr(staff, method)(url, {"post": "yes"})
    assert response.status_code == 403
    assert rows() == before


def test_an_order_can_be_looked_at_and_not_changed(staff: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    before = rows()
    page = staff.get(change_url(order))
    assert page.status_code == 200
    assert str(order.pk) in page.text
    assert 'name="_save"' not in page.text
    fields: dict[str, Any] = {"status": "paid", "live": "", "unit": "7", "reason": "failed"}
    assert staff.post(change_url(order), fields).status_code == 403
    assert rows() == before


def test_there_is_no_action_that_deletes(staff: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    before = rows()
    assert "delete_selected" not in staff.get(LIST).text
    staff.post(LIST, {"action": "delete_selected", "_selected_action": order.pk, "post": "yes"})
    assert rows() == before


def test_only_staff_with_the_permission_sees_orders(client: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    helper = User.objects.create(username="helper", password="!", is_staff=True)
    for url in (LIST, change_url(order)):
        assert client.get(url).status_code == 302
    client.force_login(helper)
    assert client.get(LIST).status_code == 403
    helper.user_permissions.add(Permission.objects.get(codename="view_voucherorder"))
    assert client.get(LIST).status_code == 200
