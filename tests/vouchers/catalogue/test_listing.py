"""The list of sales: which, in which order, and at what cost."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from tests.support.photos import give_picture
from tests.support.sales import HOUR, make_loaded_sale, make_sale, make_voucher, reserve
from vouchers.catalogue import listing
from vouchers.catalogue.listing import cards, list_sales, public_sale
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SaleStage, SaleState, SeckillVoucher

pytestmark = pytest.mark.django_db


def test_ended_sales_come_last():
    now = timezone.now()
    windows = {
        "over for long": (-50 * HOUR, -25 * HOUR),
        "just over": (-3 * HOUR, -1 * HOUR),
        "over earlier": (-9 * HOUR, -8 * HOUR),
        "later": (5 * HOUR, 6 * HOUR),
        "soon": (1 * HOUR, 2 * HOUR),
        "running": (-1 * HOUR, 1 * HOUR),
    }
    for title, (begin, end) in windows.items():
        make_sale(voucher=make_voucher(title=title), begins_at=now + begin, ends_at=now + end)

    titles = [card.sale.voucher.title for card in list_sales(now=now)]

    assert titles == ["running", "soon", "later", "just over", "over earlier"]


def test_open_sales_come_before_coming_and_closed():
    now = timezone.now()
    fields: dict[str, dict[str, Any]] = {
        "paused": {"paused": True},
        "sold out": {"stock": 0},
        "coming": {"begins_at": now + HOUR / 2},
        "open": {},
    }
    for title, more in fields.items():
        make_loaded_sale(voucher=make_voucher(title=title), **more)

    titles = [card.sale.voucher.title for card in list_sales(now=now)]

    assert titles == ["open", "coming", "sold out", "paused"]


def test_card_shows_ledger_figures():
    sale = make_loaded_sale(stock=5)
    reserve(sale_id=sale.pk, order_id=501, user_id=1)
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=9)

    [card] = list_sales(now=timezone.now())

    assert (card.state, card.total, card.remaining, card.pending) == (SaleState.OPEN, 5, 4, 1)


def test_unloaded_sale_is_shown_by_its_row():
    make_sale(stock=5, sold=5)

    [card] = list_sales(now=timezone.now())

    assert card.state is SaleState.SOLD_OUT
    assert (card.total, card.remaining, card.pending) == (5, None, None)


def test_broken_key_hides_one_sale_only(ledger):
    broken, whole = make_loaded_sale(), make_loaded_sale()
    ledger.unlink(LedgerKeys(broken.pk).buyers)
    ledger.set(LedgerKeys(broken.pk).buyers, "of a wrong type")

    found = {card.sale.pk: card.remaining for card in list_sales(now=timezone.now())}

    assert found == {broken.pk: None, whole.pk: 5}


def test_list_without_redis_uses_rows(redis_gone):
    make_loaded_sale()

    with redis_gone():
        [card] = list_sales(now=timezone.now())

    assert (card.state, card.remaining) == (SaleState.OPEN, None)


@pytest.mark.slow
def test_list_costs_two_queries_and_one_round_trip(django_assert_num_queries, ledger_trips):
    now = timezone.now()
    for _ in range(10):
        make_loaded_sale()
        make_loaded_sale(begins_at=now - 3 * HOUR, ends_at=now - HOUR)
    list_sales(now=now)
    ledger_trips.clear()

    with django_assert_num_queries(2):
        found = list_sales(now=now)
        assert {card.sale.voucher.title for card in found} == {"Noodles"}

    assert len(found) == 20
    assert len(ledger_trips) == 1


def test_list_is_bounded(monkeypatch):
    monkeypatch.setattr(listing, "LISTED", 2)
    voucher, now = make_voucher(), timezone.now()
    for minutes in range(4):
        ends_at = now + HOUR + dt.timedelta(minutes=minutes)
        make_sale(voucher=voucher, begins_at=now, ends_at=ends_at)

    assert len(list_sales(now=now)) == 2


def test_empty_list_asks_redis_nothing(ledger_trips):
    assert list_sales(now=timezone.now()) == []
    assert cards(sales=[], now=timezone.now()) == []
    assert ledger_trips == []


def test_one_sale_costs_one_query(django_assert_num_queries):
    sale = make_sale()
    give_picture(sale.voucher, size=(300, 200))

    with django_assert_num_queries(1) as asked:
        voucher = public_sale(sale_id=sale.pk).voucher
        assert voucher.picture
        assert (voucher.title, voucher.picture.width) == ("Noodles", 300)

    assert "content" not in asked[0]["sql"]


def test_only_staff_sees_drafts_and_nobody_rehearsals():
    draft, rehearsal = make_sale(stage=SaleStage.DRAFT), make_sale(stage=SaleStage.REHEARSAL)

    assert list_sales(now=timezone.now()) == []
    assert public_sale(sale_id=draft.pk, drafts_too=True) == draft
    for sale_id, drafts_too in ((draft.pk, False), (rehearsal.pk, False), (rehearsal.pk, True)):
        with pytest.raises(SeckillVoucher.DoesNotExist):
            public_sale(sale_id=sale_id, drafts_too=drafts_too)
