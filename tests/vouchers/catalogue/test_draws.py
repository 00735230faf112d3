"""Draws as terms of a sale: what an edit may change, and when."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from orders.draws.drawing import close_list
from orders.draws.entries import store_entries
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.draws import draw_to_the_end, end, entered_draw, in_redis, make_draw
from tests.support.orders import make_buyers, make_sale, reserved
from tests.support.sales import HOUR, make_voucher, terms
from tests.support.tiers import slow_after
from vouchers.catalogue.live_changes import end_sale, extend_sale, pause_sale, resize_sale
from vouchers.catalogue.sales import (
    ListIsClosed,
    ModeIsSettled,
    SaleHasBuyers,
    StaysPublic,
    create_sale,
    delete_sale,
    edit_sale,
    terms_of,
)
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.models import Draw, RoomKind, SaleMode, SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db


def later(**fields: object) -> SeckillVoucher:
    """Return a sale that starts in an hour."""
    return make_sale(begins_in_s=3_600, ends_in_s=7_200, **fields)  # type: ignore[arg-type]


def change(sale: SeckillVoucher, **changes: object) -> SeckillVoucher:
    sale.refresh_from_db()
    return edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))  # type: ignore[arg-type]


def test_new_draw_has_a_seed_of_its_own() -> None:
    seeds = set()
    for _ in range(2):
        sale = create_sale(voucher=make_voucher(), terms=terms(mode=SaleMode.DRAW))
        seeds.add(Draw.objects.get(seckill_voucher=sale).seed)
    assert len(seeds) == 2
    assert all(len(seed) == 64 and int(seed, 16) for seed in seeds)


def test_ordinary_sale_has_no_draw() -> None:
    create_sale(voucher=make_voucher(), terms=terms())
    assert not Draw.objects.exists()


@pytest.mark.parametrize("changes", [{"limit": 2}, {"room": RoomKind.BUSY}])
def test_draw_with_limit_or_room_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        create_sale(voucher=make_voucher(), terms=terms(mode=SaleMode.DRAW, **changes))
    # Control: the database refuses it as well.
    with pytest.raises(IntegrityError), transaction.atomic():
        make_sale(mode=SaleMode.DRAW, loaded=False, **changes)


@pytest.mark.django_db(transaction=True)
def test_mode_changes_before_the_start_in_both_directions() -> None:
    sale = later()
    change(sale, mode=SaleMode.DRAW, draw_wait_s=60)
    seed = Draw.objects.get(seckill_voucher=sale).seed
    ends_at = sale.ends_at.timestamp()
    assert snapshot(sale_id=sale.pk).terms.draw_gives_until_ms == int((ends_at + 60) * 1000)
    change(sale, mode=SaleMode.FIRST_COME)
    assert snapshot(sale_id=sale.pk).terms.draw_gives_until_ms == 0
    assert not snapshot(sale_id=sale.pk).terms.paused
    change(sale, mode=SaleMode.DRAW)
    assert Draw.objects.get(seckill_voucher=sale).seed == seed


def test_mode_is_settled_after_the_start() -> None:
    with pytest.raises(ModeIsSettled):
        change(make_sale(), mode=SaleMode.DRAW)
    with pytest.raises(ModeIsSettled):
        change(make_draw(), mode=SaleMode.FIRST_COME)


@pytest.mark.parametrize("is_stored", slow_after(1, [False, True]))
def test_draw_with_entries_keeps_its_mode_and_is_not_deleted(is_stored: bool) -> None:
    sale, _ = entered_draw(make_buyers(1))
    if is_stored:
        store_entries(sale_id=sale.pk)
    begins_at = timezone.now() + HOUR  # moved: the entries stay
    change(sale, begins_at=begins_at, ends_at=begins_at + HOUR)
    with pytest.raises(ModeIsSettled):
        change(sale, mode=SaleMode.FIRST_COME)
    with pytest.raises(StaysPublic):
        change(sale, stage=SaleStage.DRAFT)
    with pytest.raises(SaleHasBuyers):
        delete_sale(sale_id=sale.pk)
    load_sale(sale_id=sale.pk)
    assert not snapshot(sale_id=sale.pk).terms.paused


def test_sale_with_buyers_does_not_become_a_draw() -> None:
    sale = make_sale()
    reserved(sale, make_buyers(1))
    begins_at = timezone.now() + HOUR
    change(sale, begins_at=begins_at, ends_at=begins_at + HOUR)
    with pytest.raises(ModeIsSettled):
        change(sale, mode=SaleMode.DRAW)


def test_deleted_draw_leaves_nothing() -> None:
    sale = make_draw()
    delete_sale(sale_id=sale.pk)
    assert not Draw.objects.exists()
    assert not ledger_connection().exists(*LedgerKeys(sale.pk).movable)


def test_closed_list_keeps_window_and_units() -> None:
    sale, _ = entered_draw(make_buyers(4), stock=2)
    end(sale)
    close_list(sale_id=sale.pk)
    with pytest.raises(ListIsClosed):
        change(sale, ends_at=sale.ends_at + HOUR)
    with pytest.raises(ListIsClosed):
        change(sale, stock=1)
    change(sale, stock=3)
    draw_to_the_end(sale)
    with pytest.raises(ListIsClosed):
        change(sale, begins_at=sale.begins_at - dt.timedelta(seconds=1))
    assert sale.orders.filter(live=True).count() == 2


@pytest.mark.slow
def test_shop_changes_a_running_draw() -> None:
    sale, tokens = entered_draw(make_buyers(2), stock=2)
    pause_sale(sale_id=sale.pk)
    change(sale, paused=False)
    extend_sale(sale_id=sale.pk, ends_at=sale.ends_at + HOUR, seen=sale.ends_at)
    resize_sale(sale_id=sale.pk, stock=1, seen=2)
    sale.refresh_from_db()
    end_sale(sale_id=sale.pk, seen=sale.ends_at)
    assert in_redis(sale) == sorted(it.order_id for it in tokens)
    load_sale(sale_id=sale.pk)
    end(sale)
    draw_to_the_end(sale)
    assert sale.orders.filter(live=True).count() == 1


def test_draw_gives_units_until_its_wait_is_over() -> None:
    sale = make_draw(draw_wait_s=90)
    assert sale.gives_until == sale.ends_at + dt.timedelta(seconds=90)
    ordinary = make_sale(draw_wait_s=90)
    assert ordinary.gives_until == ordinary.ends_at
