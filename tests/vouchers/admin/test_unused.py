"""The switch of a sale for unused vouchers, and the question before an edit refunds any."""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from backoffice.demo.sales import make_sales
from orders.models import OrderStatus, VoucherOrder
from tests.support.html_forms import filled
from tests.support.orders import make_buyers, make_order
from tests.support.sales import HOUR, make_loaded_sale, make_sale
from tests.support.spreadsheets import ENGLISH, HOTPOT, as_csv
from tests.support.staff import staff_with
from tests.support.tiers import slow_after
from tests.vouchers.admin.test_prices import OVER, question_of
from tests.vouchers.admin.test_sale import ADD, ENTRIES, change_url, entries_of, last_change
from tests.vouchers.admin.test_voucher import CONFIRM, key_in, upload
from tests.vouchers.catalogue.test_series import SERIES, create
from vouchers.catalogue.history import history_text
from vouchers.catalogue.public_sales import revision_of
from vouchers.catalogue.series import copy_terms
from vouchers.models import SaleStage, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db(transaction=True)

DAY = dt.timedelta(days=1)
HEADINGS = ["id", "valid until"]


def days_on(days: int) -> dt.date:
    return timezone.localdate() + days * DAY


def sold(count: int, *, last_day: dt.date | None = None, **fields: Any) -> SeckillVoucher:
    """Make a sale with paid vouchers, and one of each state that no refund is about."""
    sale = make_loaded_sale(**{**OVER, "stock": 50, **fields})
    Voucher.objects.filter(pk=sale.voucher_id).update(valid_until=last_day)
    others = (OrderStatus.UNPAID, OrderStatus.USED, OrderStatus.REFUNDING)
    buyers = make_buyers(count + len(others))
    for buyer, status in zip(buyers, [*[OrderStatus.PAID] * count, *others], strict=True):
        make_order(sale, buyer, status=status)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=len(buyers))
    sale.refresh_from_db()
    return sale


def voucher_url(sale: SeckillVoucher) -> str:
    return f"/admin/vouchers/voucher/{sale.voucher_id}/change/"


def ask(shop: Client, url: str, **changes: Any) -> Any:
    return shop.post(url, {**filled(shop.get(url)), **changes})


def last_day_of(sale: SeckillVoucher) -> dt.date | None:
    return Voucher.objects.get(pk=sale.voucher_id).valid_until


# --- The switch ----------------------------------------------------------------------------------


def test_new_sales_refund_unused_vouchers(shop: Client) -> None:
    assert "on" in filled(shop.get(ADD))["refund_unused"]
    assert shop.post(ADD, {**ENTRIES, "refund_unused": "on"}).status_code == 302
    assert SeckillVoucher.objects.get().refund_unused is True


def make_by_command(_shop: Client) -> None:
    window = ("--begins-in", "-60", "--ends-in", "3600")
    call_command("create_sale", "--title", "Rice", "--stock", "5", *window, stdout=StringIO())


def make_by_file(shop: Client) -> None:
    shop.post(CONFIRM, {"key": key_in(upload(shop, as_csv(ENGLISH, HOTPOT)))})


def make_series(shop: Client) -> None:
    url = f"{SERIES}?sale={SeckillVoucher.objects.get().pk}"
    create(shop, filled(shop.get(url)), url)


def make_demo(_shop: Client) -> None:
    make_sales(now=timezone.now())


@pytest.mark.parametrize(
    "make", slow_after(1, [make_by_command, make_by_file, make_series, make_demo])
)
def test_every_way_to_make_sales_gives_them_the_rule(
    shop: Client, make: Callable[[Client], None]
) -> None:
    before = make_sale(refund_unused=None)
    make(shop)
    made = SeckillVoucher.objects.exclude(pk=before.pk)
    assert {it.refund_unused for it in made} == {True}


def test_sale_from_before_stays_as_it_is(shop: Client) -> None:
    """The column is new in a release: rows that it finds have no value, and keep none."""
    operations = importlib.import_module("vouchers.migrations.0019_refund_unused").Migration
    added = operations.operations[0].field
    assert (added.null, added.has_default(), added.has_db_default()) == (True, False, False)
    sale = make_loaded_sale(refund_unused=None)
    assert "refund_unused" not in filled(shop.get(change_url(sale)))
    assert ask(shop, change_url(sale), title="Rice").status_code == 302
    sale.refresh_from_db()
    assert (sale.voucher.title, sale.refund_unused) == ("Rice", None)
    assert ask(shop, change_url(sale), refund_unused="on").status_code == 302
    sale.refresh_from_db()
    assert sale.refund_unused is True
    assert "Refund unused vouchers: – → yes" in last_change()


@pytest.mark.parametrize(("stored", "copied"), [(None, True), (False, False), (True, True)])
def test_copy_of_a_sale_from_before_has_the_rule(*, stored: bool | None, copied: bool) -> None:
    sale = make_sale(refund_unused=stored)
    terms = copy_terms(sale=sale, now=timezone.now(), zone=timezone.get_default_timezone())
    assert terms.refund_unused is copied


def test_switch_is_part_of_what_buyers_agree_to() -> None:
    off, none, on = (make_sale(refund_unused=it) for it in (False, None, True))
    texts = []
    for sale in (off, none, on):
        sale.voucher, sale.begins_at, sale.ends_at = off.voucher, off.begins_at, off.ends_at
        texts.append(revision_of(sale))
    assert texts[0] == texts[1] != texts[2]


def test_reader_of_a_sale_sees_the_switch() -> None:
    sale = make_loaded_sale(refund_unused=None)
    reader = staff_with("view_seckillvoucher", name="reader")
    page = reader.get(change_url(sale)).text
    assert "Refund unused vouchers" in page
    assert "icon-unknown" not in page


# --- Questions -----------------------------------------------------------------------------------


def test_earlier_last_day_in_the_form_of_a_voucher_asks(shop: Client) -> None:
    sale = sold(3, last_day=days_on(30))
    day = str(days_on(2))

    page = ask(shop, voucher_url(sale), valid_until=day)

    asked = question_of(page)
    assert "this refunds vouchers that buyers have paid for" in asked
    assert f"Valid until {days_on(30)} → {day}" in asked
    assert f"Refunds of unused vouchers – → 3 vouchers, ¥240.00, after {day}" in asked
    assert "running now" not in asked
    assert last_day_of(sale) == days_on(30)

    again = filled(page)
    assert shop.post(voucher_url(sale), {**again, "why": ""}).status_code == 200
    assert last_day_of(sale) == days_on(30)
    assert shop.post(voucher_url(sale), {**again, "why": "the shop moves"}).status_code == 302
    assert str(last_day_of(sale)) == day
    assert "Reason: the shop moves" in last_change()


@pytest.mark.parametrize("running", slow_after(1, [True, False]))
def test_earlier_last_day_in_the_form_of_a_sale_asks(shop: Client, *, running: bool) -> None:
    window = {"begins_at": timezone.now() - HOUR, "ends_at": timezone.now() + HOUR}
    sale = sold(2, **(window if running else {}))
    entries = entries_of(sale, refund_unused="on", valid_until=str(days_on(9)))
    page = shop.post(change_url(sale), entries)
    assert f"2 vouchers, ¥160.00, after {days_on(9)}" in question_of(page)
    assert ("running now" in question_of(page)) is running
    assert last_day_of(sale) is None
    assert shop.post(change_url(sale), {**filled(page), "why": "x"}).status_code == 302
    assert last_day_of(sale) == days_on(9)


def test_switch_that_is_turned_on_asks(shop: Client) -> None:
    sale = sold(1, last_day=days_on(-5), refund_unused=None)
    page = ask(shop, change_url(sale), refund_unused="on")
    assert "Refunds of unused vouchers – → 1 voucher, ¥80.00, within an hour" in question_of(page)
    sale.refresh_from_db()
    assert sale.refund_unused is None
    assert shop.post(change_url(sale), {**filled(page), "why": "promised"}).status_code == 302
    sale.refresh_from_db()
    assert sale.refund_unused is True


def test_all_sales_of_the_voucher_count(shop: Client) -> None:
    sale = sold(1, last_day=days_on(30))
    other = make_sale(voucher=sale.voucher, **OVER)
    off = make_sale(voucher=sale.voucher, refund_unused=False, **OVER)
    shadow = make_sale(voucher=sale.voucher, stage=SaleStage.REHEARSAL, **OVER)
    for it in (other, off, shadow):
        make_order(it, make_buyers(1)[0], status=OrderStatus.PAID)
    free = make_order(other, make_buyers(1)[0], status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=free.pk).update(price_cents=0)
    page = ask(shop, voucher_url(sale), valid_until=str(days_on(2)))
    assert "2 vouchers, ¥160.00" in question_of(page)


@pytest.mark.parametrize(
    "changes",
    slow_after(1, [{"valid_until": str(days_on(60))}, {"valid_until": ""}, {"title": "Rice"}]),
    ids=["later", "never", "another"],
)
def test_other_edits_ask_nothing(shop: Client, changes: dict[str, str]) -> None:
    sale = sold(3, last_day=days_on(30))
    assert ask(shop, voucher_url(sale), **changes).status_code == 302


def test_switch_turned_off_with_an_earlier_day_asks_nothing(shop: Client) -> None:
    sale = sold(3, last_day=days_on(30))
    entries = entries_of(sale, valid_until=str(days_on(2)))
    entries.pop("refund_unused", None)
    assert shop.post(change_url(sale), entries).status_code == 302
    assert last_day_of(sale) == days_on(2)


def test_more_sold_meanwhile_asks_anew_only_if_many_more(shop: Client) -> None:
    sale = sold(3, last_day=days_on(30))
    again = {**filled(ask(shop, voucher_url(sale), valid_until=str(days_on(2)))), "why": "x"}
    for buyer in make_buyers(7):
        make_order(sale, buyer, status=OrderStatus.PAID)
    page = shop.post(voucher_url(sale), again)
    assert "10 vouchers, ¥800.00" in question_of(page)
    VoucherOrder.objects.filter(status=OrderStatus.PAID).latest("pk").delete()
    assert shop.post(voucher_url(sale), again).status_code == 302


def test_question_about_refunds_is_in_chinese_too(shop: Client) -> None:
    sale = sold(2, last_day=days_on(30))
    entries = {**filled(shop.get(voucher_url(sale))), "valid_until": str(days_on(2))}
    page = shop.post(voucher_url(sale), entries, headers={"Accept-Language": "zh-hans"})
    assert f"未使用优惠券退款 – → 2 份，¥160.00，{days_on(2)} 过后" in question_of(page)


def test_staff_who_may_not_run_sales_are_asked_too() -> None:
    sale = sold(2, last_day=days_on(30))
    clerk = staff_with("view_voucher", "change_voucher", name="clerk")
    page = ask(clerk, voucher_url(sale), valid_until=str(days_on(2)))
    assert "2 vouchers, ¥160.00" in question_of(page)
    assert last_day_of(sale) == days_on(30)


def test_file_with_earlier_last_days_asks(shop: Client) -> None:
    sales = [sold(2, last_day=days_on(30)), sold(1), sold(4, refund_unused=False)]
    day = str(days_on(2))
    shown = upload(shop, as_csv(HEADINGS, *[[it.voucher_id, day] for it in sales]))

    assert "paid for and not used: 3 vouchers, ¥240.00." in shown.text
    assert f"Refunds after {day}: 2 vouchers, ¥160.00" in shown.text
    refused = shop.post(CONFIRM, {"key": key_in(shown), "why": " "})
    assert refused.status_code == 409
    assert "or why vouchers are refunded" in refused.text
    assert [last_day_of(it) for it in sales] == [days_on(30), None, None]

    again = {"key": key_in(refused), "why": "the shop moves"}
    assert shop.post(CONFIRM, again).status_code == 302
    assert {str(last_day_of(it)) for it in sales} == {day}
    texts = [history_text(it) for it in LogEntry.objects.all()]
    assert sorted("Reason: the shop moves" in it for it in texts) == [False, True, True]


def test_vouchers_sold_after_the_preview_are_asked_about(shop: Client) -> None:
    sale = sold(0, last_day=days_on(30))
    shown = upload(shop, as_csv(HEADINGS, [sale.voucher_id, str(days_on(2))]))
    assert 'name="why"' not in shown.text
    make_order(sale, make_buyers(1)[0], status=OrderStatus.PAID)
    answer = shop.post(CONFIRM, {"key": key_in(shown)})
    assert answer.status_code == 409
    assert "paid for and not used: 1 voucher, ¥80.00." in answer.text
    for buyer in make_buyers(9):
        make_order(sale, buyer, status=OrderStatus.PAID)
    answer = shop.post(CONFIRM, {"key": key_in(answer), "why": "x"})
    assert answer.status_code == 409
    assert "paid for and not used: 10 vouchers, ¥800.00." in answer.text
    assert last_day_of(sale) == days_on(30)


def test_file_with_later_last_days_asks_nothing(shop: Client) -> None:
    sale = sold(2, last_day=days_on(30))
    shown = upload(shop, as_csv(HEADINGS, [sale.voucher_id, str(days_on(31))]))
    assert 'name="why"' not in shown.text
    assert shop.post(CONFIRM, {"key": key_in(shown)}).status_code == 302
