"""A new price through each door of the back office, while an order is on its way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from django.test import Client

from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from tests.support.sales import make_loaded_sale, make_user, reserve
from tests.support.spreadsheets import ENGLISH, as_csv
from tests.vouchers.admin.test_sale import change_url, entries_of
from tests.vouchers.admin.test_voucher import CONFIRM, key_in, upload
from vouchers.catalogue import prices
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SaleState, SeckillVoucher, Voucher

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("row_locks"),
]

OLD, NEW = 8_000, 9_500


def by_sale(shop: Client, sale: SeckillVoucher) -> Any:
    return shop.post(change_url(sale), entries_of(sale, price="95"), follow=True)


def by_voucher(shop: Client, sale: SeckillVoucher) -> Any:
    entries = {"title": "Noodles", "price_cents": "95", "face_value_cents": "100"}
    entries["merchant"] = str(sale.voucher.merchant_id or "")
    return shop.post(f"/admin/vouchers/voucher/{sale.voucher_id}/change/", entries, follow=True)


def by_file(shop: Client, sale: SeckillVoucher) -> Any:
    content = as_csv(ENGLISH, [sale.voucher_id, "", "", "95", *[""] * 5])
    return shop.post(CONFIRM, {"key": key_in(upload(shop, content))}, follow=True)


doors = pytest.mark.parametrize("change_price", [by_sale, by_voucher, by_file])
Door = Callable[[Client, SeckillVoucher], Any]


def sale_with_an_order_on_its_way() -> SeckillVoucher:
    sale, buyer = make_loaded_sale(), make_user("ada")
    reserve(sale_id=sale.pk, order_id=501, user_id=buyer.pk, price_cents=OLD)
    return sale


@doors
def test_new_price_waits_for_an_order_on_its_way(
    shop: Client, change_price: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = sale_with_an_order_on_its_way()

    def rest(sale_ids: Collection[int], *, until: float) -> None:
        assert snapshot(sale_id=sale.pk).state is SaleState.PAUSED
        fulfil_sale(sale_id=sale.pk)

    monkeypatch.setattr(prices, "_rest", rest)
    change_price(shop, sale)

    assert Voucher.objects.get().price_cents == NEW
    assert VoucherOrder.objects.get().price_cents == OLD
    assert snapshot(sale_id=sale.pk).state is SaleState.OPEN


@doors
def test_price_stays_if_orders_take_long(
    shop: Client, change_price: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = sale_with_an_order_on_its_way()
    monkeypatch.setattr(prices, "REST_S", 0.0)

    page = change_price(shop, sale)

    assert "orders at the old price are still being written" in page.text
    assert Voucher.objects.get().price_cents == OLD
    assert snapshot(sale_id=sale.pk).state is SaleState.OPEN
    assert not VoucherOrder.objects.exists()


@doors
def test_price_stays_without_redis(
    shop: Client, change_price: Door, lose_ledger: Callable[[], object]
) -> None:
    sale = make_loaded_sale()
    lose_ledger()

    page = change_price(shop, sale)

    assert "The change was not saved: Redis did not respond." in page.text
    assert Voucher.objects.get().price_cents == OLD
