"""The demo's sales have a face of their own, and one is always about to start."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from backoffice.demo.sales import LENGTH, NEXT, SOON, make_sales, renew_next_sale
from tests.support.orders import make_buyer, make_order, reserved
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SaleStage, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def started() -> SeckillVoucher:
    """The demo's next sale, an hour after it has started."""
    ids = make_sales(now=timezone.now() - HOUR)
    return SeckillVoucher.objects.get(pk=ids[NEXT["title"]])


def test_each_voucher_has_merchant_picture_english_and_last_day() -> None:
    make_sales(now=timezone.now())
    vouchers = Voucher.objects.all()
    assert len({it.merchant_id for it in vouchers}) == 3
    for voucher in vouchers:
        assert voucher.picture_id
        assert voucher.place
        assert voucher.title_en.isascii() or "¥" in voucher.title_en
        assert voucher.valid_until


def test_next_sale_starts_soon_again(started: SeckillVoucher) -> None:
    now = timezone.now().replace(microsecond=0)
    assert renew_next_sale(now=now) == started.pk
    started.refresh_from_db()
    assert (started.begins_at, started.ends_at) == (now + SOON, now + SOON + LENGTH)
    assert snapshot(sale_id=started.pk).state == "scheduled"


def test_sale_about_to_start_stays_as_it_is(started: SeckillVoucher) -> None:
    now = timezone.now()
    renew_next_sale(now=now)
    assert renew_next_sale(now=now + dt.timedelta(minutes=3)) is None


def test_order_anywhere_ends_the_renewals(started: SeckillVoucher) -> None:
    other = SeckillVoucher.objects.exclude(pk=started.pk).first()
    assert other
    make_order(other, make_buyer())
    assert renew_next_sale(now=timezone.now()) is None


def test_reservation_without_a_row_ends_them_too(started: SeckillVoucher) -> None:
    reserved(started, [make_buyer()])
    assert renew_next_sale(now=timezone.now()) is None


def test_sale_that_the_shop_has_changed_is_left_alone(started: SeckillVoucher) -> None:
    SeckillVoucher.objects.filter(pk=started.pk).update(stage=SaleStage.DRAFT)
    assert renew_next_sale(now=timezone.now()) is None
