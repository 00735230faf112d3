"""A new price of a voucher that is on sale: only while no order is on its way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction

from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from seckill_site.failpoints import FailpointReached, armed
from tests.support.draws import draw_to_the_end, end, enter, entered_draw, make_draw
from tests.support.orders import tokens_for
from tests.support.sales import HOUR, lose_state, make_loaded_sale, make_sale, make_user, reserve
from vouchers.catalogue import prices, sales
from vouchers.catalogue.prices import (
    OrdersOnTheirWay,
    PriceIsSettled,
    close_to_reprice,
    lock_to_reprice,
    once_at_rest,
)
from vouchers.catalogue.sales import VoucherDetails, edit_sale, terms_of
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import PriceChanged, SalePaused
from vouchers.inventory.sale_state import snapshot, snapshots, write_terms
from vouchers.lock_objects import lock_vouchers
from vouchers.models import SaleState, SeckillVoucher

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("row_locks"),
]

OLD, NEW = 8_000, 9_500


def details(sale: SeckillVoucher, cents: int = NEW) -> VoucherDetails:
    voucher = sale.voucher
    return VoucherDetails(voucher.title, voucher.rules, cents, voucher.face_value_cents)


def reprice(sale: SeckillVoucher, cents: int = NEW) -> None:
    """Change the price as the form of a sale does."""
    terms = terms_of(SeckillVoucher.objects.get(pk=sale.pk))
    once_at_rest(lambda: edit_sale(sale_id=sale.pk, terms=terms, details=details(sale, cents)))


def price_of(sale: SeckillVoucher) -> tuple[int, int | None, SaleState]:
    """Return the price in the row and in the ledger, and the state of the sale."""
    sale.voucher.refresh_from_db()
    ledger = snapshots(sale_ids=[sale.pk], with_price=True)[sale.pk]
    assert ledger
    return sale.voucher.price_cents, ledger.terms.price_cents, ledger.state


def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "REST_S", 0.0)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker write the orders while the edit waits for them."""

    def rest(sale_ids: Collection[int], *, until: float) -> None:
        for sale_id in sale_ids:
            fulfil_sale(sale_id=sale_id)

    monkeypatch.setattr(prices, "_rest", rest)


def test_new_price_reaches_row_and_ledger() -> None:
    sale = make_loaded_sale()
    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)

    reprice(sale)

    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)


def test_old_price_is_refused_after_the_edit() -> None:
    sale = make_loaded_sale()
    reprice(sale)

    with pytest.raises(PriceChanged) as refused:
        reserve(sale_id=sale.pk, order_id=501, user_id=7, price_cents=OLD)

    assert refused.value.args == (NEW,)
    assert snapshot(sale_id=sale.pk).taken == 0


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_accepted_order_keeps_the_price_its_buyer_agreed_to(
    guarded: bool, worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(sales, "close_to_reprice", lambda **_: None)
    sale, buyer = make_loaded_sale(), make_user("ada")
    reserve(sale_id=sale.pk, order_id=501, user_id=buyer.pk, price_cents=OLD)

    reprice(sale)
    fulfil_sale(sale_id=sale.pk)

    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)
    assert VoucherOrder.objects.get(pk=501).price_cents == (OLD if guarded else NEW)


def test_nobody_is_accepted_while_the_queue_empties(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, buyer = make_loaded_sale(), make_user("ada")
    reserve(sale_id=sale.pk, order_id=501, user_id=buyer.pk, price_cents=OLD)
    refused: list[int] = []

    def rest(sale_ids: Collection[int], *, until: float) -> None:
        with pytest.raises(SalePaused):
            reserve(sale_id=sale.pk, order_id=502, user_id=8, price_cents=OLD)
        refused.append(502)
        fulfil_sale(sale_id=sale.pk)

    monkeypatch.setattr(prices, "_rest", rest)
    reprice(sale)

    assert refused == [502]
    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)


def test_edit_gives_up_and_opens_the_sale(monkeypatch: pytest.MonkeyPatch) -> None:
    in_no_time(monkeypatch)
    sale = make_loaded_sale()
    reserve(sale_id=sale.pk, order_id=501, user_id=7, price_cents=OLD)

    with pytest.raises(OrdersOnTheirWay):
        reprice(sale)

    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)
    reserve(sale_id=sale.pk, order_id=502, user_id=8, price_cents=OLD)


def test_orders_of_another_sale_of_the_voucher_count(monkeypatch: pytest.MonkeyPatch) -> None:
    in_no_time(monkeypatch)
    sale = make_loaded_sale()
    other = make_loaded_sale(voucher=sale.voucher)
    reserve(sale_id=other.pk, order_id=501, user_id=7, price_cents=OLD)

    with pytest.raises(OrdersOnTheirWay):
        reprice(sale)

    assert price_of(other) == (OLD, OLD, SaleState.OPEN)


def test_all_sales_of_the_voucher_get_the_price() -> None:
    sale = make_loaded_sale()
    later = make_loaded_sale(
        voucher=sale.voucher, begins_at=sale.ends_at, ends_at=sale.ends_at + HOUR
    )

    reprice(sale)

    assert price_of(later) == (NEW, NEW, SaleState.SCHEDULED)


def test_paused_sale_stays_paused() -> None:
    sale = make_loaded_sale(paused=True)

    reprice(sale)

    assert price_of(sale) == (NEW, NEW, SaleState.PAUSED)


def test_sale_without_ledger_is_loaded_first() -> None:
    sale = make_sale()

    reprice(sale)

    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)


def test_what_a_lost_ledger_had_pending_is_written_first(worker: None) -> None:
    sale, buyer = make_loaded_sale(), make_user("ada")
    reserve(sale_id=sale.pk, order_id=501, user_id=buyer.pk, price_cents=OLD)
    lose_state(sale.pk)

    reprice(sale)

    assert VoucherOrder.objects.get(pk=501).price_cents == OLD
    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)


def test_sale_that_is_put_on_sale_meanwhile_counts() -> None:
    sale = make_loaded_sale()
    with transaction.atomic():
        locked = lock_to_reprice(prices={sale.voucher_id: NEW})
        other = make_sale(voucher=sale.voucher)
        lock_vouchers(voucher_ids=[sale.voucher_id])
        with pytest.raises(OrdersOnTheirWay):
            close_to_reprice(voucher_ids=[sale.voucher_id], locked=locked)

    reprice(other)

    assert price_of(other) == price_of(sale) == (NEW, NEW, SaleState.OPEN)


def test_other_edits_do_not_close_the_sale(monkeypatch: pytest.MonkeyPatch) -> None:
    in_no_time(monkeypatch)
    sale = make_loaded_sale()
    reserve(sale_id=sale.pk, order_id=501, user_id=7, price_cents=OLD)

    reprice(sale, OLD)

    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)


# --- A process that dies --------------------------------------------------------------------------


def test_sale_opens_again_at_the_old_price_after_a_crash() -> None:
    sale = make_loaded_sale()

    with armed("price.closed=raise"), pytest.raises(FailpointReached):
        reprice(sale)
    assert price_of(sale) == (OLD, OLD, SaleState.PAUSED)
    reconcile(sale_id=sale.pk, repair=True)

    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)


def test_sale_opens_at_the_new_price_after_a_crash() -> None:
    sale = make_loaded_sale()

    with armed("edit.committed=raise"), pytest.raises(FailpointReached):
        reprice(sale)
    assert price_of(sale) == (NEW, OLD, SaleState.PAUSED)
    reconcile(sale_id=sale.pk, repair=True)

    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)


@pytest.mark.parametrize("lost", [None, "7777"], ids=["lost", "another"])
def test_reconciling_repairs_the_price_of_a_ledger(ledger: Any, lost: str | None) -> None:
    sale = make_loaded_sale()
    ledger.delete(LedgerKeys(sale.pk).price)
    if lost:
        ledger.set(LedgerKeys(sale.pk).price, lost)

    found = reconcile(sale_id=sale.pk, repair=False)
    reconcile(sale_id=sale.pk, repair=True)

    assert found.difference == 1
    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)


# --- Draws ----------------------------------------------------------------------------------------


def test_draw_keeps_the_price_of_its_first_entry() -> None:
    sale, _ = entered_draw([make_user("ada")])

    with pytest.raises(PriceIsSettled):
        reprice(sale)

    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)


def test_settled_price_leaves_the_other_terms_as_they_are() -> None:
    sale, _ = entered_draw([make_user("ada")])
    fewer = replace(terms_of(sale), stock=1)

    with pytest.raises(PriceIsSettled):
        once_at_rest(lambda: edit_sale(sale_id=sale.pk, terms=fewer, details=details(sale)))

    assert snapshot(sale_id=sale.pk).terms.total == sale.stock > 1


def test_draw_without_entries_gets_the_price() -> None:
    sale = make_draw()

    reprice(sale)

    assert price_of(sale) == (NEW, NEW, SaleState.OPEN)


def test_entry_beside_the_edit_settles_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came before the sale was closed, and after the edit had looked for entries."""
    sale, buyer = make_draw(), make_user("ada")

    def write_after_an_entry(**kwargs: Any) -> None:
        monkeypatch.undo()
        [token] = tokens_for(sale, [buyer])
        enter(token)
        write_terms(**kwargs)

    monkeypatch.setattr(prices, "write_terms", write_after_an_entry)

    with pytest.raises(PriceIsSettled):
        reprice(sale)

    assert price_of(sale) == (OLD, OLD, SaleState.OPEN)


def test_price_may_change_once_all_of_a_draw_is_given() -> None:
    sale, _ = entered_draw([make_user("ada")])
    end(sale)
    with pytest.raises(PriceIsSettled):
        reprice(sale)
    draw_to_the_end(sale)

    reprice(sale)

    assert VoucherOrder.objects.get().price_cents == OLD
    assert price_of(sale)[:2] == (NEW, NEW)
