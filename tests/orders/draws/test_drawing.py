"""The steps after the end: each is done once, whoever repeats it and wherever it stops."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from orders.draws.drawing import (
    ListChanged,
    advance_draws,
    close_list,
    draw_winners,
    finish,
    give_units,
    take_due_steps,
)
from orders.draws.rules import drawn_order, list_digest
from orders.draws.standing import Stage, standing_of
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import join, restore_lines
from orders.models import DrawEntry, VoucherOrder, WaitingEntry
from seckill_site import failpoints
from seckill_site.clocks.database import database_now
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.failpoints import FailpointReached
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.draws import draw_to_the_end, end, entered_draw, listed, make_draw
from tests.support.inspection import assert_conserved, live_ids, pending_ids, refusals_of
from tests.support.orders import ids, make_buyers, token_for
from tests.support.passes import cut_after_one
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import SaleEnded
from vouchers.models import Draw, SeckillVoucher

pytestmark = pytest.mark.django_db


def order_of(sale: SeckillVoucher) -> list[int]:
    """Return the drawn order, computed without the product's steps."""
    seed = Draw.objects.get(seckill_voucher=sale).seed
    found = listed(sale)
    return drawn_order(seed=seed, digest=list_digest(found), entry_ids=found)


def ended_draw(*, buyers: int = 6, stock: int = 2, **fields: int) -> SeckillVoucher:
    sale, _ = entered_draw(make_buyers(buyers), stock=stock, **fields)
    end(sale)
    return sale


def waiting_ids(sale: SeckillVoucher) -> list[int]:
    """Return the waiting list as Redis has it."""
    members = ledger_connection().zrange(LedgerKeys(sale.pk).waiting, 0, -1)
    return [int(member.partition(":")[0]) for member in members]


def stage_of(sale: SeckillVoucher, order_id: int) -> tuple[Stage, str]:
    user_id = DrawEntry.objects.values_list("user_id", flat=True).get(pk=order_id)
    found = standing_of(sale_id=sale.pk, order_id=order_id, user_id=user_id or 0)
    assert found
    return found.stage, found.reason


def test_everybody_wins_if_units_are_left() -> None:
    sale = ended_draw(buyers=2, stock=5)
    draw_to_the_end(sale)
    assert live_ids(sale) == listed(sale)
    assert_conserved(sale)


def test_draw_without_entries_ends() -> None:
    sale = ended_draw(buyers=0)
    draw_to_the_end(sale)
    assert (live_ids(sale), Draw.of(sale).entries) == ([], 0)


def test_draw_without_units_has_no_winner() -> None:
    sale = ended_draw(stock=0)
    draw_to_the_end(sale)
    assert live_ids(sale) == []
    assert stage_of(sale, listed(sale)[0]) == (Stage.OUT, "not_drawn")


def test_rest_is_told_that_it_did_not_win() -> None:
    sale = ended_draw()
    last = order_of_after_storing(sale)[-1]
    assert stage_of(sale, last)[0] is Stage.ENTERED
    draw_to_the_end(sale)
    assert stage_of(sale, last) == (Stage.OUT, "not_drawn")
    assert waiting_ids(sale) == []


def order_of_after_storing(sale: SeckillVoucher) -> list[int]:
    close_list(sale_id=sale.pk)
    return order_of(sale)


def test_rest_waits_in_drawn_order() -> None:
    sale = ended_draw(draw_wait_s=3_600)
    draw_to_the_end(sale)
    order = order_of(sale)
    assert waiting_ids(sale) == order[2:]
    assert stage_of(sale, order[2]) == (Stage.WAITING, "")
    rows = WaitingEntry.objects.filter(seckill_voucher=sale, live=True).order_by("joined_at")
    assert list(rows.values_list("order_id", flat=True)) == order[2:]


def test_returned_unit_goes_to_the_next_in_drawn_order() -> None:
    sale = ended_draw(draw_wait_s=3_600)
    draw_to_the_end(sale)
    order = order_of(sale)
    cancel_order(order_id=order[0], by=Actor.staff(make_buyers(1)[0].pk), now=database_now())
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == sorted(order[1:3])
    assert stage_of(sale, order[2])[0] in (Stage.WAITING, Stage.WON)
    assert_conserved(sale)


def test_returned_unit_stays_free_without_a_waiting_list() -> None:
    sale = ended_draw()
    draw_to_the_end(sale)
    order = order_of(sale)
    cancel_order(order_id=order[0], by=Actor.staff(make_buyers(1)[0].pk), now=database_now())
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [order[1]]


def test_nobody_joins_the_waiting_list_of_a_draw() -> None:
    sale, [buyer] = make_draw(), make_buyers(1)
    token = token_for(sale, buyer).sign()
    with pytest.raises(SaleEnded):
        join(token_text=token, sale_id=sale.pk, user_id=buyer.pk, now_ms=ledger_now_ms())
    assert not WaitingEntry.objects.exists()


def test_winner_whose_account_is_closed_gets_no_order() -> None:
    sale = ended_draw(draw_wait_s=3_600)
    order = order_of_after_storing(sale)
    first = DrawEntry.objects.values_list("user_id", flat=True).get(pk=order[0])
    User.objects.filter(pk=first).update(is_active=False)
    draw_to_the_end(sale)
    fulfil_sale(sale_id=sale.pk)
    assert refusals_of(sale) == {order[0]: "inactive_buyer"}
    assert live_ids(sale) == sorted(order[1:3])  # the first who waits has the unit
    assert_conserved(sale)


def test_winner_whose_account_is_deleted_is_passed_over() -> None:
    sale = ended_draw()
    order = order_of_after_storing(sale)
    User.objects.get(draw_entries=order[0]).delete()
    draw_to_the_end(sale)
    assert live_ids(sale) == [order[1]]
    assert_conserved(sale)


POINTS = (
    "draw.before_store",
    "draw.stored",
    "draw.entries_stored",
    "draw.entries_closed",
    "draw.before_close",
    "draw.closed",
    "draw.before_draw",
    "draw.drawn",
    "draw.given",
    "fulfill.locked",
    "draw.before_finish",
    "draw.finished",
)


@pytest.mark.parametrize("loss", [False, True], ids=["", "and Redis is emptied"])
@pytest.mark.parametrize("point", slow_after(2, POINTS))
def test_draw_that_stops_anywhere_is_continued(point: str, loss: bool) -> None:
    sale, tokens = entered_draw(make_buyers(8), stock=3, draw_wait_s=3_600)
    if loss:
        take_due_steps(sale_id=sale.pk)  # the entries are rows: nothing of them may be lost
        if point in ("draw.before_store", "draw.stored"):
            return
    end(sale)
    with failpoints.armed(f"{point}=raise"), pytest.raises(FailpointReached):
        draw_to_the_end(sale)
    if loss:
        ledger_connection().unlink(*LedgerKeys(sale.pk).movable)
    draw_to_the_end(sale)
    restore_lines(now=database_now())
    order = order_of(sale)
    assert sorted(order) == ids(tokens)
    assert live_ids(sale) == sorted(order[:3])
    assert waiting_ids(sale) == order[3:]
    assert pending_ids(sale) == []
    assert_conserved(sale)


def test_rest_does_not_wait_before_all_winners_have_orders() -> None:
    sale = ended_draw(draw_wait_s=3_600)
    take_due_steps(sale_id=sale.pk)
    take_due_steps(sale_id=sale.pk)
    assert (waiting_ids(sale), WaitingEntry.objects.count()) == ([], 0)
    # Control: those who wait take the units of winners whom Redis has lost.
    finish(sale_id=sale.pk)
    ledger_connection().unlink(*LedgerKeys(sale.pk).movable)
    load_sale(sale_id=sale.pk)
    assert set(pending_ids(sale)).isdisjoint(order_of(sale)[:2])


def test_ended_winner_is_not_given_a_unit_again() -> None:
    sale = ended_draw()
    close_list(sale_id=sale.pk)
    draw_winners(sale_id=sale.pk)
    give_units(sale_id=sale.pk)
    fulfil_sale(sale_id=sale.pk)
    order = order_of(sale)
    cancel_order(order_id=order[0], by=Actor.staff(make_buyers(1)[0].pk), now=database_now())
    draw_to_the_end(sale)
    assert live_ids(sale) == [order[1]]
    assert VoucherOrder.objects.get(pk=order[0]).status == "cancelled"


def test_changed_list_is_not_drawn() -> None:
    sale = ended_draw()
    close_list(sale_id=sale.pk)
    DrawEntry.objects.filter(pk=listed(sale)[0]).delete()
    with pytest.raises(ListChanged):
        draw_winners(sale_id=sale.pk)
    assert Draw.of(sale).drawn_at is None


def test_draw_of_its_units_ignores_a_later_stock() -> None:
    sale = ended_draw()
    close_list(sale_id=sale.pk)
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=4)
    load_sale(sale_id=sale.pk)
    draw_to_the_end(sale)
    assert live_ids(sale) == sorted(order_of(sale)[:2])


def test_one_failing_draw_does_not_stop_the_others() -> None:
    broken, whole = ended_draw(), ended_draw()
    close_list(sale_id=broken.pk)
    DrawEntry.objects.filter(pk=listed(broken)[0]).delete()
    advance_draws()
    fulfil_sale(sale_id=whole.pk)
    advance_draws()
    assert Draw.of(whole).finished_at
    assert Draw.of(broken).drawn_at is None


def test_cut_pass_goes_on_with_the_next_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    draws = [ended_draw() for _ in range(2)]
    closed = []
    for _ in draws:
        is_left = advance_draws()
        closed.append((sum(Draw.of(sale).closed_at is not None for sale in draws), is_left))
    assert closed == [(1, True), (2, False)]


def test_draws_are_left_to_the_worker_at_them() -> None:
    sale = ended_draw()
    ledger_connection().set("lock:draws", "somebody", px=60_000)
    advance_draws()
    assert Draw.of(sale).closed_at is None


def test_entries_of_a_finished_draw_expire_in_redis() -> None:
    sale = ended_draw()
    key = LedgerKeys(sale.pk).entries
    assert ledger_connection().pttl(key) == -1
    draw_to_the_end(sale)
    assert ledger_connection().pttl(key) > 0
