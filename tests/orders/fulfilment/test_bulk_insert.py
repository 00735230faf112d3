"""Rows inserted without the ORM equal those of the ORM."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from orders.fulfilment.bulk_insert import EVENT_COLUMNS, ORDER_COLUMNS, NewOrder, insert_orders
from orders.models import OrderEvent, OrderStatus, RefusalReason, VoucherOrder
from seckill_site.clocks.machine import epoch_ms
from tests.support.orders import PRICE_CENTS, make_buyer, make_buyers, make_sale
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

NOW = dt.datetime(2026, 11, 11, 12, 0, 0, 123456, tzinfo=dt.UTC)
ACCEPTED_AT = dt.datetime(2026, 11, 11, 11, 59, 58, 7_000, tzinfo=dt.UTC)
"""The clock of Redis is read to the millisecond."""


def new(sale: SeckillVoucher, number: int, user_id: int | None, reason: str = "") -> NewOrder:
    return NewOrder(number, user_id, sale.pk, 1, reason, epoch_ms(ACCEPTED_AT))


def test_every_column_is_written() -> None:
    """A column that is added to a model, with a default that only the ORM knows, fails here."""
    orders = {field.column for field in VoucherOrder._meta.concrete_fields}
    orders -= {"extended_at"}  # nobody has taken more time yet
    events = {field.column for field in OrderEvent._meta.concrete_fields}
    events -= {"id", "webhooks_due"}  # no webhook tells of a new order
    assert set(ORDER_COLUMNS) == orders
    assert set(EVENT_COLUMNS) == events


def test_row_equals_one_written_by_the_orm() -> None:
    sale, (one, other) = make_sale(pay_within_s=600), make_buyers(2)
    insert_orders(sale=sale, orders=[new(sale, 11, one.pk)], now=NOW)
    by_orm = VoucherOrder(
        id=12, user=other, seckill_voucher=sale, unit=1, status=OrderStatus.UNPAID,
        price_cents=PRICE_CENTS, pay_by=NOW + dt.timedelta(minutes=10),
        accepted_at=ACCEPTED_AT,
    )  # fmt: skip
    VoucherOrder.objects.bulk_create([by_orm])
    VoucherOrder.objects.filter(pk=12).update(created_at=NOW)
    ours, theirs = VoucherOrder.objects.order_by("pk").values()
    assert {**ours, "id": 0, "user_id": 0} == {**theirs, "id": 0, "user_id": 0}


def test_refused_row_has_reason_and_no_unit() -> None:
    sale = make_sale()
    orders = [new(sale, 11, None, RefusalReason.INACTIVE_BUYER.value)]
    insert_orders(sale=sale, orders=orders, now=timezone.now())
    row = VoucherOrder.objects.get(pk=11)
    assert (row.status, row.live, row.user_id) == (OrderStatus.REFUSED, None, None)
    assert row.reason == RefusalReason.INACTIVE_BUYER


def test_each_order_has_its_first_event() -> None:
    sale, buyer = make_sale(), make_buyer()
    refused = new(sale, 12, buyer.pk, RefusalReason.SOLD_OUT.value)
    insert_orders(sale=sale, orders=[new(sale, 11, buyer.pk), refused], now=NOW)
    columns = ("order_id", "before", "after", "at", "actor_kind", "actor", "reason", "notified_at")
    events = OrderEvent.objects.order_by("order_id").values_list(*columns)
    assert [tuple(event) for event in events] == [
        (11, "", "unpaid", NOW, "system", None, "", None),
        (12, "", "refused", NOW, "system", None, "", None),
    ]


@pytest.mark.parametrize("count", [1, 300])
def test_batch_of_any_size_takes_two_statements(
    count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale, buyers = make_sale(), make_buyers(count)
    assert sale.voucher.price_cents == PRICE_CENTS  # read before, as under the row's lock
    orders = [new(sale, number, buyer.pk) for number, buyer in enumerate(buyers, start=1)]
    with django_assert_num_queries(2):
        insert_orders(sale=sale, orders=orders, now=NOW)
    assert VoucherOrder.objects.count() == OrderEvent.objects.count() == count


def test_table_refuses_second_live_order_of_a_unit() -> None:
    sale, buyer = make_sale(), make_buyer()
    orders = [new(sale, 11, buyer.pk), new(sale, 12, buyer.pk)]
    with pytest.raises(IntegrityError), transaction.atomic():
        insert_orders(sale=sale, orders=orders, now=NOW)
    assert not VoucherOrder.objects.exists()
