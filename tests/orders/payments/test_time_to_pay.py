"""The time to pay, which is over once the database and Redis both say so."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from orders.lifecycle.transitions import WrongState
from orders.models import OrderStatus, VoucherOrder
from orders.payments import time_to_pay
from orders.payments.service import start_payment
from orders.payments.time_to_pay import over
from orders.receipts.row_copy import read_receipt_row
from seckill_site.clocks.machine import epoch_ms
from seckill_site.clocks.steps import Clocks, ClocksUnsettled
from tests.support.orders import make_buyer, make_order
from tests.support.payments import ADDRESSES, expire_all
from tests.support.sales import make_loaded_sale
from vouchers.models import SeckillVoucher

HOUR = dt.timedelta(hours=1)
MINUTE = dt.timedelta(minutes=1)
NOW = timezone.now().replace(microsecond=0)
BOTH = Clocks(NOW, NOW)

pytestmark = pytest.mark.django_db


@pytest.fixture
def order() -> VoucherOrder:
    """An order with 15 minutes to pay, accepted a second before it was written."""
    sale = make_loaded_sale()
    order = make_order(sale, make_buyer())
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=1)
    written(order, at=NOW)
    return order


def written(order: VoucherOrder, *, at: dt.datetime, accepted: dt.datetime | None = None) -> None:
    VoucherOrder.objects.filter(pk=order.pk).update(
        created_at=at,
        accepted_at=accepted or at - dt.timedelta(seconds=1),
        pay_by=at + 15 * MINUTE,
    )


def is_over(clocks: Clocks) -> bool:
    return VoucherOrder.objects.filter(over(clocks)).exists()


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [
        (BOTH, False),
        (Clocks(NOW + 15 * MINUTE, NOW + 15 * MINUTE), True),
        (Clocks(NOW + 14 * MINUTE, NOW + HOUR), False),
        (Clocks(NOW + HOUR, NOW + 14 * MINUTE), False),
        (Clocks(NOW + HOUR, NOW - HOUR), False),
    ],
)
def test_time_is_over_by_both_clocks(
    order: VoucherOrder, clocks: Clocks, *, expected: bool
) -> None:
    assert is_over(clocks) is expected


def test_clocks_that_always_differ_take_and_give_no_time(order: VoucherOrder) -> None:
    written(order, at=NOW + HOUR, accepted=NOW)
    assert not is_over(Clocks(NOW + HOUR + 14 * MINUTE, NOW + 14 * MINUTE))
    assert is_over(Clocks(NOW + HOUR + 15 * MINUTE, NOW + 15 * MINUTE))


def test_order_from_a_jump_of_the_database_keeps_its_time(order: VoucherOrder) -> None:
    """It was written while the database was an hour behind."""
    written(order, at=NOW - HOUR, accepted=NOW)
    assert not is_over(Clocks(NOW + 14 * MINUTE, NOW + 14 * MINUTE))
    assert is_over(Clocks(NOW + 15 * MINUTE, NOW + 15 * MINUTE))


def test_older_orders_get_their_time_anew(order: VoucherOrder) -> None:
    set_at = NOW + HOUR

    def after(minutes: int) -> Clocks:
        return Clocks(set_at + minutes * MINUTE, set_at + minutes * MINUTE, anew_since=set_at)

    assert not is_over(after(14))
    assert is_over(after(15))
    written(order, at=set_at + MINUTE)
    assert not is_over(after(15))
    assert is_over(after(16))


@pytest.mark.django_db(transaction=True)
def test_order_expires_by_both_clocks_alone(order: VoucherOrder) -> None:
    assert expire_all(clocks=Clocks(NOW + HOUR, NOW)) == 0
    assert expire_all(clocks=Clocks(NOW, NOW + HOUR)) == 0
    assert expire_all(clocks=Clocks(NOW + HOUR, NOW + HOUR)) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("settled", [True, False])
def test_order_can_be_paid_until_both_clocks_say_no(
    order: VoucherOrder, monkeypatch: pytest.MonkeyPatch, *, settled: bool
) -> None:
    def clocks() -> Clocks:
        if settled:
            return Clocks(NOW + HOUR, NOW + HOUR)
        raise ClocksUnsettled

    assert start_payment(order_id=order.pk, **ADDRESSES, now=NOW + HOUR)
    monkeypatch.setattr(time_to_pay, "settled_clocks", clocks)
    if not settled:
        assert start_payment(order_id=order.pk, **ADDRESSES, now=NOW + HOUR)
        return
    with pytest.raises(WrongState) as refusal:
        start_payment(order_id=order.pk, **ADDRESSES, now=NOW + HOUR)
    assert refusal.value.status == OrderStatus.EXPIRED


@pytest.mark.parametrize(
    ("written_after", "expected"), [(6 * MINUTE, 21 * MINUTE), (-HOUR, 15 * MINUTE)]
)
def test_pages_show_the_whole_time_to_pay(
    order: VoucherOrder, written_after: dt.timedelta, expected: dt.timedelta
) -> None:
    """The order was written late, or by a database that is behind for good."""
    written(order, at=NOW + written_after, accepted=NOW)
    row = read_receipt_row(order_id=order.pk)
    assert row
    assert row.pay_by_ms == epoch_ms(NOW + expected)
