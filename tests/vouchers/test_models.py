"""The models of sales and orders: named constraints of the database, and states."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, OperationalError
from django.db.models import ProtectedError
from django.utils import timezone, translation

from orders.models import OrderStatus, RefusalReason, VoucherOrder
from tests.support.sales import HOUR, make_order, make_sale, make_user, make_voucher
from vouchers.models import MAX_STOCK, Merchant, SaleState, SeckillVoucher, Voucher

pytestmark = [pytest.mark.django_db, pytest.mark.quick]


# --- vouchers and sales ---------------------------------------------------------------------------


def test_price_above_face_value_is_refused() -> None:
    with pytest.raises(IntegrityError, match="voucher_price_within_face_value"):
        make_voucher(price_cents=10_001, face_value_cents=10_000)


@pytest.mark.parametrize(
    ("constraint", "fields"),
    [
        ("sale_sold_within_stock", {"stock": 1, "sold": 2}),
        ("sale_stock_within_bounds", {"stock": MAX_STOCK + 1}),
        ("sale_limit_1_to_20", {"limit": 0}),
        ("sale_limit_1_to_20", {"limit": 21}),
        ("sale_ends_after_it_begins", {"ends_at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}),
    ],
)
def test_sale_constraint_is_named(constraint: str, fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=constraint):
        make_sale(**fields)


def test_sale_that_ends_at_its_start_is_refused() -> None:
    now = timezone.now()

    with pytest.raises(IntegrityError, match="sale_ends_after_it_begins"):
        make_sale(begins_at=now, ends_at=now)


def test_update_to_more_sold_than_stock_is_refused() -> None:
    sale = make_sale(stock=1, sold=1)

    with pytest.raises(IntegrityError, match="sale_sold_within_stock"):
        SeckillVoucher.objects.filter(pk=sale.pk).update(sold=2)


@pytest.mark.parametrize("field", ["stock", "sold"])
def test_negative_count_is_refused(field: str) -> None:
    sale = make_sale()

    with pytest.raises((IntegrityError, DataError, OperationalError)):
        SeckillVoucher.objects.filter(pk=sale.pk).update(**{field: -1})


@pytest.mark.parametrize(
    "fields", [{"stock": 0}, {"stock": MAX_STOCK, "sold": MAX_STOCK}, {"limit": 1}, {"limit": 20}]
)
def test_bounds_are_allowed(fields: dict[str, Any]) -> None:
    make_sale(**fields).full_clean()


@pytest.mark.parametrize(
    ("field", "value"),
    [("stock", MAX_STOCK + 1), ("stock", -1), ("limit", 0), ("limit", 21)],
)
def test_value_out_of_bounds_fails_validation(field: str, value: int) -> None:
    sale = make_sale()
    setattr(sale, field, value)

    with pytest.raises(ValidationError):
        sale.full_clean()


def test_voucher_with_sale_is_protected() -> None:
    sale = make_sale()

    with pytest.raises(ProtectedError):
        sale.voucher.delete()


def test_sale_is_named_by_voucher_and_id() -> None:
    sale = make_sale()

    assert str(sale) == f"Noodles #{sale.pk}"


@pytest.mark.parametrize(
    ("fields", "at", "state"),
    [
        ({"paused": True, "stock": 0}, HOUR, SaleState.ENDED),
        ({"paused": True, "stock": 0}, -2 * HOUR, SaleState.PAUSED),
        ({"stock": 0}, -2 * HOUR, SaleState.SCHEDULED),
        ({"stock": 2, "sold": 2}, dt.timedelta(), SaleState.SOLD_OUT),
        ({"stock": 2, "sold": 1}, dt.timedelta(), SaleState.OPEN),
    ],
)
def test_state_is_first_that_applies(
    fields: dict[str, Any], at: dt.timedelta, state: SaleState
) -> None:
    now = timezone.now()
    sale = make_sale(begins_at=now - HOUR, ends_at=now + HOUR, **fields)

    assert sale.state_at(now + at) is state


def test_sale_is_open_at_start_and_ended_at_end() -> None:
    sale = make_sale()

    assert sale.state_at(sale.begins_at) is SaleState.OPEN
    assert sale.state_at(sale.ends_at) is SaleState.ENDED


def test_title_keeps_any_script_and_emoji() -> None:
    voucher = make_voucher(title="牛肉面 🍜 для всех")

    assert Voucher.objects.get(pk=voucher.pk).title == "牛肉面 🍜 для всех"


# --- the orders of a sale -------------------------------------------------------------------------


@pytest.mark.servers
def test_second_live_order_of_same_unit_is_refused() -> None:
    sale, user = make_sale(), make_user("ada")
    make_order(sale, user, order_id=501)

    with pytest.raises(IntegrityError, match="order_one_live_per_buyer_unit"):
        make_order(sale, user, order_id=502)


def test_other_unit_sale_or_buyer_is_no_second_order() -> None:
    sale, user = make_sale(limit=2), make_user("ada")
    make_order(sale, user, order_id=501)

    make_order(sale, user, order_id=502, unit=2)
    make_order(make_sale(), user, order_id=503)
    make_order(sale, make_user("bob"), order_id=504)

    assert VoucherOrder.objects.filter(live=True).count() == 4


@pytest.mark.parametrize(
    "over",
    [
        {"status": OrderStatus.CANCELLED},
        {"status": OrderStatus.EXPIRED},
        {"status": OrderStatus.REFUNDED},
        {"status": OrderStatus.REFUSED, "reason": RefusalReason.SOLD_OUT},
    ],
    ids=lambda over: over["status"].value,
)
def test_ended_order_does_not_block_a_new_one(over: dict[str, Any]) -> None:
    sale, user = make_sale(), make_user("ada")
    make_order(sale, user, order_id=501, **over)
    make_order(sale, user, order_id=502, **over)

    make_order(sale, user, order_id=503)

    assert VoucherOrder.objects.filter(live=True).get().pk == 503


@pytest.mark.parametrize(
    ("constraint", "fields"),
    [
        ("order_unit_1_to_20", {"unit": 0}),
        ("order_unit_1_to_20", {"unit": 21}),
        ("order_live_while_it_holds_a_unit", {"status": OrderStatus.PAID, "live": None}),
        ("order_live_while_it_holds_a_unit", {"status": OrderStatus.CANCELLED, "live": True}),
        ("order_live_while_it_holds_a_unit", {"status": OrderStatus.PAID, "live": False}),
        ("order_refused_with_a_reason", {"status": OrderStatus.REFUSED, "reason": ""}),
    ],
)
def test_order_constraint_is_named(constraint: str, fields: dict[str, Any]) -> None:
    sale, user = make_sale(), make_user("ada")

    with pytest.raises(IntegrityError, match=constraint):
        make_order(sale, user, order_id=501, **fields)


def test_live_order_without_buyer_is_refused() -> None:
    sale = make_sale()

    with pytest.raises(IntegrityError, match="order_has_a_buyer_while_live"):
        make_order(sale, None, order_id=501)


def test_sale_with_order_is_protected() -> None:
    sale = make_sale()
    make_order(sale, make_user("ada"), order_id=501)

    with pytest.raises(ProtectedError):
        sale.delete()


def test_order_id_of_63_bits_is_exact() -> None:
    order_id = 2**63 - 1
    make_order(make_sale(), make_user("ada"), order_id=order_id)

    assert VoucherOrder.objects.get().pk == order_id


# --- Merchants and what buyers read ---------------------------------------------------------------


def test_shop_without_merchants_gets_one_of_its_own_name(settings: Any) -> None:
    settings.SECKILL_SHOP_NAME = "好券集市"
    assert Merchant.default().name == "好券集市"
    settings.SECKILL_SHOP_NAME = "renamed"
    assert Merchant.default().name == "好券集市"
    assert Merchant.objects.count() == 1


def test_oldest_merchant_is_the_default() -> None:
    first = Merchant.objects.create(name="Zoo")
    Merchant.objects.create(name="Ant")
    assert Merchant.default() == first


def test_merchant_with_vouchers_cannot_be_deleted() -> None:
    merchant = Merchant.objects.create(name="Tea")
    make_voucher(merchant=merchant)
    with pytest.raises(ProtectedError):
        merchant.delete()


def test_texts_are_in_the_readers_language_if_given() -> None:
    voucher = make_voucher(title="面", rules="一碗", title_en="Noodles")
    with translation.override("en"):
        assert (voucher.local_title, voucher.local_rules) == ("Noodles", "一碗")
    with translation.override("zh-hans"):
        assert voucher.local_title == "面"


def test_voucher_is_valid_at_its_merchant_unless_it_says_otherwise() -> None:
    merchant = Merchant.objects.create(name="Tea", address="18 Old Street")
    assert make_voucher(merchant=merchant).place == "18 Old Street"
    assert make_voucher(merchant=merchant, valid_where="all branches").place == "all branches"
    assert make_voucher().place == ""


def test_merchant_has_name_and_address_in_the_readers_language() -> None:
    merchant = Merchant(name="茶馆", name_en="Tea", address="老街", address_en="Old Street")
    with translation.override("en"):
        assert (str(merchant), merchant.local_address) == ("Tea", "Old Street")
        assert str(Merchant(name="茶馆")) == "茶馆"
    with translation.override("zh-hans"):
        assert (str(merchant), merchant.local_address) == ("茶馆", "老街")


def test_last_day_is_included() -> None:
    voucher = make_voucher(valid_until=dt.date(2026, 12, 31))
    assert not voucher.is_past(dt.date(2026, 12, 31))
    assert voucher.is_past(dt.date(2027, 1, 1))
    assert not make_voucher().is_past(dt.date(2999, 1, 1))
