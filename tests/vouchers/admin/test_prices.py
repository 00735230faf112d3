"""A new price through each door of the back office, while an order is on its way."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from tests.support.html_forms import filled
from tests.support.sales import HOUR, make_loaded_sale, make_sale, make_user, make_voucher, reserve
from tests.support.spreadsheets import ENGLISH, as_csv
from tests.support.tiers import slow_after
from tests.vouchers.admin.test_sale import change_url, entries_of, last_change
from tests.vouchers.admin.test_voucher import CONFIRM, key_in, upload
from vouchers.catalogue import prices
from vouchers.catalogue.history import history_text
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SaleState, SeckillVoucher, Voucher

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("row_locks"),
]

OLD, NEW = 8_000, 9_500


def confirmed(shop: Client, url: str, entries: dict[str, Any]) -> Any:
    """Send entries, and confirm them with a reason."""
    key = filled(shop.post(url, entries)).get("confirmed", "")
    return shop.post(url, {**entries, "confirmed": key, "why": "dearer"}, follow=True)


def by_sale(shop: Client, sale: SeckillVoucher) -> Any:
    return confirmed(shop, change_url(sale), entries_of(sale, price="95"))


def by_voucher(shop: Client, sale: SeckillVoucher) -> Any:
    entries = {"title": "Noodles", "price_cents": "95", "face_value_cents": "100"}
    url = f"/admin/vouchers/voucher/{sale.voucher_id}/change/"
    return confirmed(shop, url, {**filled(shop.get(url)), **entries})


def by_file(shop: Client, sale: SeckillVoucher) -> Any:
    content = as_csv(ENGLISH, [sale.voucher_id, "", "", "95", *[""] * 5])
    key = key_in(upload(shop, content))
    return shop.post(CONFIRM, {"key": key, "why": "dearer"}, follow=True)


doors = pytest.mark.parametrize("change_price", slow_after(1, [by_sale, by_voucher, by_file]))
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


# --- Questions about what is on sale --------------------------------------------------------------


COMING = {"begins_at": timezone.now() + HOUR, "ends_at": timezone.now() + 2 * HOUR}
OVER = {"begins_at": timezone.now() - 2 * HOUR, "ends_at": timezone.now() - HOUR}


def question_of(page: Any) -> str:
    """Return the words of the question that a page asks; nothing if it asks none."""
    found = re.search(r'<div class="asks-first">(.*?)</div>\s*</li>', page.text, re.DOTALL)
    return " ".join(re.sub("<[^>]+>", " ", found[1]).split()) if found else ""


@pytest.mark.parametrize(
    "change", slow_after(1, [{"price": "95"}, {"limit": "3"}, {"price": "95", "limit": "3"}])
)
def test_change_of_a_running_sale_asks_first(shop: Client, change: dict[str, str]) -> None:
    sale = make_loaded_sale()
    other = make_sale(voucher=sale.voucher)
    make_sale(voucher=sale.voucher, **COMING)
    make_sale(voucher=sale.voucher, stage="draft")
    entries = entries_of(sale, why="dearer", title="Rice", **change)

    page = shop.post(change_url(sale), entries)

    asked = question_of(page)
    assert ("Price ¥80.00 → ¥95.00" in asked) is ("price" in change)
    assert ("Limit per buyer 1 → 3" in asked) is ("limit" in change)
    assert re.findall(r"Noodles #(\d+)", asked) == [str(sale.pk), str(other.pk)]
    sale.refresh_from_db()
    assert (sale.voucher.price_cents, sale.limit, sale.voucher.title) == (OLD, 1, "Noodles")

    again = filled(page)
    assert (again["why"], again["title"]) == ("dearer", "Rice")
    assert shop.post(change_url(sale), {**again, "why": ""}).status_code == 200
    assert shop.post(change_url(sale), again).status_code == 302

    sale = SeckillVoucher.objects.get(pk=sale.pk)
    wanted = int(change.get("price", 80)) * 100, int(change.get("limit", 1)), "Rice"
    assert (sale.voucher.price_cents, sale.limit, sale.voucher.title) == wanted
    assert "Reason: dearer" in last_change()


@pytest.mark.slow
def test_confirmation_is_one_of_these_changes_alone(shop: Client) -> None:
    sale = make_loaded_sale()
    asked = filled(shop.post(change_url(sale), entries_of(sale, price="95", why="dearer")))
    page = shop.post(change_url(sale), {**asked, "price": "0.95"})
    assert "Price ¥80.00 → ¥0.95" in question_of(page)
    make_sale(voucher=sale.voucher)
    page = shop.post(change_url(sale), asked)
    assert "Price ¥80.00 → ¥95.00" in question_of(page)
    assert Voucher.objects.get().price_cents == OLD


@pytest.mark.parametrize("sale", slow_after(1, [COMING, OVER, {"stage": "draft"}]))
def test_change_of_no_running_sale_asks_nothing(shop: Client, sale: dict[str, Any]) -> None:
    stored = make_loaded_sale(**sale)
    shop.post(change_url(stored), entries_of(stored, price="95", limit="3", stage=stored.stage))
    assert Voucher.objects.get().price_cents == NEW


def test_new_limit_of_a_coming_sale_asks_nothing(shop: Client) -> None:
    coming = make_loaded_sale(**COMING)
    make_sale(voucher=coming.voucher)
    assert shop.post(change_url(coming), entries_of(coming, limit="3")).status_code == 302


def test_price_in_the_form_of_a_voucher_asks_first(shop: Client) -> None:
    sale = make_loaded_sale()
    url = f"/admin/vouchers/voucher/{sale.voucher_id}/change/"

    page = shop.post(url, {**filled(shop.get(url)), "price_cents": "95", "title": "Rice"})

    assert "Price ¥80.00 → ¥95.00" in question_of(page)
    assert Voucher.objects.get().price_cents == OLD
    assert shop.post(url, {**filled(page), "why": "dearer"}).status_code == 302
    assert Voucher.objects.get().price_cents == NEW
    assert "Price: ¥80.00 → ¥95.00" in last_change()
    assert "Reason: dearer" in last_change()


def test_question_is_asked_in_chinese_too(shop: Client) -> None:
    sale = make_loaded_sale()
    page = shop.post(
        change_url(sale), entries_of(sale, price="95"), headers={"Accept-Language": "zh-hans"}
    )
    assert "售价 ¥80.00 → ¥95.00" in question_of(page)


def test_price_in_a_file_asks_first(shop: Client) -> None:
    sale = make_loaded_sale()
    other, idle = make_sale(voucher=sale.voucher), make_voucher()
    make_sale(voucher=sale.voucher, **COMING)
    rows = [[it, "", "", "95", *[""] * 5] for it in (sale.voucher_id, idle.pk)]
    shown = upload(shop, as_csv(ENGLISH, *rows))
    running = re.findall(r'/(\d+)/board/">', shown.text)
    assert running == [str(sale.pk), str(other.pk)]
    assert "<del>¥80.00</del>" in shown.text

    refused = shop.post(CONFIRM, {"key": key_in(shown), "why": " "})

    assert refused.status_code == 409
    assert "Nothing was imported: say why the price of what is on sale now" in refused.text
    assert set(Voucher.objects.values_list("price_cents", flat=True)) == {OLD}

    again = {"key": key_in(refused), "why": "dearer"}
    assert shop.post(CONFIRM, again).status_code == 302
    assert set(Voucher.objects.values_list("price_cents", flat=True)) == {NEW}
    texts = [history_text(it) for it in LogEntry.objects.order_by("pk")]
    assert ["Reason: dearer" in it for it in texts] == [True, False]


def test_sale_that_starts_after_the_preview_is_asked_about(shop: Client) -> None:
    voucher = make_voucher()
    content = as_csv(ENGLISH, [voucher.pk, "", "", "95", *[""] * 5])
    key = key_in(upload(shop, content))
    sale = make_loaded_sale(voucher=voucher)

    answer = shop.post(CONFIRM, {"key": key})

    assert answer.status_code == 409
    assert f"/{sale.pk}/board/" in answer.text
