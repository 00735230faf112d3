"""Entries in a draw: accepted once, copied into rows, withdrawn, and closed exactly once."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from orders.draws import entries
from orders.draws.drawing import close_list, take_due_steps
from orders.draws.entries import store_entries, withdraw
from orders.models import DrawEntry
from orders.placing.tokens import PurchaseToken
from seckill_site.redis.ledger_connection import ledger_connection
from tests.fixtures.vouchers import DropGuard
from tests.support.draws import end, enter, entered, entered_draw, in_redis, listed, make_draw
from tests.support.orders import ids, make_buyer, make_buyers, make_sale, token_for
from tests.support.sales import change_state, lose_state, redis_now_ms, reserve
from vouchers.inventory import entering
from vouchers.inventory.draw_entries import NoEntry, fresh_entries
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.rebuild import load_sale, rebuild_sale
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    NotReplicated,
    NotStarted,
    OtherMode,
    SaleEnded,
    SalePaused,
)
from vouchers.inventory.sale_state import snapshot
from vouchers.models import Draw, SeckillVoucher

pytestmark = pytest.mark.django_db


def take_back(token: PurchaseToken) -> None:
    entry = {"sale_id": token.sale_id, "order_id": token.order_id, "user_id": token.user_id}
    withdraw(**entry, now_ms=redis_now_ms())


# --- Entering -------------------------------------------------------------------------------------


def test_same_token_enters_once() -> None:
    sale, [token] = entered_draw([make_buyer()])
    enter(token)
    assert in_redis(sale) == [token.order_id]
    assert snapshot(sale_id=sale.pk).entries == 1


def test_account_has_one_entry() -> None:
    sale, buyer = make_draw(), make_buyer()
    [first] = entered(sale, [buyer])
    with pytest.raises(AlreadyOrdered) as caught:
        entered(sale, [buyer])
    assert caught.value.order_id == first.order_id


def test_entry_takes_no_unit() -> None:
    sale, _ = entered_draw(make_buyers(3), stock=1)
    assert snapshot(sale_id=sale.pk).remaining == 1
    assert snapshot(sale_id=sale.pk).state == "open"


def test_draw_never_sells_first_come() -> None:
    sale, buyer = make_draw(), make_buyer()
    with pytest.raises(OtherMode):
        reserve(sale_id=sale.pk, order_id=7, user_id=buyer.pk)


def test_ordinary_sale_takes_no_entry() -> None:
    sale = make_sale()
    with pytest.raises(OtherMode):
        entered(sale, [make_buyer()])


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"begins_at_ms": 9_000_000_000_000, "ends_at_ms": 9_999_999_999_999}, NotStarted),
        ({"paused": 1}, SalePaused),
        ({"ends_at_ms": 1}, SaleEnded),
    ],
)
def test_entry_outside_the_window_is_refused(
    changes: dict[str, int], refusal: type[Exception]
) -> None:
    sale = make_draw()
    change_state(sale.pk, **changes)
    with pytest.raises(refusal):
        entered(sale, [make_buyer()])
    assert in_redis(sale) == []


def test_known_entry_is_accepted_after_the_end() -> None:
    sale, [token] = entered_draw([make_buyer()])
    end(sale)
    enter(token)


def test_closed_list_takes_nothing_when_the_clock_goes_back() -> None:
    sale = make_draw()
    end(sale)
    assert close_list(sale_id=sale.pk)
    change_state(sale.pk, ends_at_ms=redis_now_ms() + 60_000)  # as after a jump back
    with pytest.raises(SaleEnded):
        entered(sale, [make_buyer()])
    # Control: only the mark of the close refuses.
    ledger_connection().hset(LedgerKeys(sale.pk).entries, "phase", "open")
    entered(sale, [make_buyer()])


# --- Rows -----------------------------------------------------------------------------------------


def test_entries_become_rows_and_leave_the_log() -> None:
    sale, tokens = entered_draw(make_buyers(3))
    store_entries(sale_id=sale.pk)
    assert listed(sale) == ids(tokens)
    assert fresh_entries(sale_id=sale.pk, most=0) == ([], [])
    row = DrawEntry.objects.get(pk=tokens[0].order_id)
    assert row.user_id == tokens[0].user_id


def test_many_entries_become_rows_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "AT_ONCE", 2)
    sale, _ = entered_draw(make_buyers(5))
    stored = []
    while take_due_steps(sale_id=sale.pk):
        stored.append(len(listed(sale)))
    assert (stored, len(listed(sale))) == ([2, 4], 5)


def test_storing_again_changes_nothing() -> None:
    sale, tokens = entered_draw(make_buyers(3))
    store_entries(sale_id=sale.pk)
    with CaptureQueriesContext(connection) as queries:
        store_entries(sale_id=sale.pk)
    assert listed(sale) == ids(tokens)
    assert not [it for it in queries if it["sql"].startswith("INSERT")]


@pytest.mark.parametrize("how", ["lost", "of a wrong type"])
def test_lost_log_loses_no_entry(how: str) -> None:
    sale, tokens = entered_draw(make_buyers(2))
    key = LedgerKeys(sale.pk).fresh
    ledger_connection().delete(key)
    if how != "lost":
        ledger_connection().set(key, "x")
    tokens += entered(sale, make_buyers(1))
    store_entries(sale_id=sale.pk)
    assert listed(sale) == ids(tokens)


@pytest.mark.parametrize("how", ["lost", "of a wrong type"])
def test_lost_entries_close_the_ledger_and_come_back_from_rows(how: str) -> None:
    sale, tokens = entered_draw(make_buyers(3))
    store_entries(sale_id=sale.pk)
    key = LedgerKeys(sale.pk).entries
    ledger_connection().delete(key)
    if how != "lost":
        ledger_connection().set(key, "x")
    with pytest.raises(NotLoaded):
        entered(sale, [make_buyer()])
    load_sale(sale_id=sale.pk)
    assert in_redis(sale) == ids(tokens)
    with pytest.raises(AlreadyOrdered):
        enter(tokens[0]._replace(order_id=tokens[0].order_id + 1_000))


def test_emptied_redis_keeps_what_has_rows() -> None:
    sale, tokens = entered_draw(make_buyers(3))
    store_entries(sale_id=sale.pk)
    ledger_connection().unlink(*LedgerKeys(sale.pk).movable)
    load_sale(sale_id=sale.pk)
    assert in_redis(sale) == ids(tokens)
    assert listed(sale) == ids(tokens)


def test_rebuild_keeps_entries_without_rows() -> None:
    sale, tokens = entered_draw(make_buyers(3))
    rebuild_sale(sale_id=sale.pk)
    store_entries(sale_id=sale.pk)
    assert listed(sale) == ids(tokens)


def test_second_entry_after_a_loss_is_told_so() -> None:
    sale, buyer = make_draw(), make_buyer()
    [first] = entered(sale, [buyer])
    store_entries(sale_id=sale.pk)
    ledger_connection().hdel(LedgerKeys(sale.pk).entries, str(buyer.pk))  # an older copy of Redis
    [second] = entered(sale, [buyer])
    store_entries(sale_id=sale.pk)
    assert listed(sale) == [first.order_id]
    row = DrawEntry.objects.get(pk=second.order_id)
    assert (row.live, row.outcome) == (None, "already_ordered")
    rebuild_sale(sale_id=sale.pk)
    assert in_redis(sale) == [first.order_id]
    enter(second)  # accepted once, so its holder is sent to its receipt again


def test_entry_of_a_deleted_account_stays_listed() -> None:
    sale, buyers = make_draw(), make_buyers(2)
    tokens = entered(sale, buyers)
    buyers[0].delete()
    store_entries(sale_id=sale.pk)
    buyers[1].delete()
    assert listed(sale) == ids(tokens)


# --- Withdrawing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stored", [False, True])
def test_withdrawn_entry_is_not_listed(is_stored: bool) -> None:
    sale, [token] = entered_draw([make_buyer()])
    if is_stored:
        store_entries(sale_id=sale.pk)
    take_back(token)
    take_back(token)
    store_entries(sale_id=sale.pk)
    assert (in_redis(sale), listed(sale)) == ([], [])
    assert DrawEntry.objects.get(pk=token.order_id).outcome == "withdrawn"
    enter(token)  # the answer to an accepted id stays the same
    assert in_redis(sale) == []


def test_buyer_may_enter_again_after_withdrawing() -> None:
    sale, buyer = make_draw(), make_buyer()
    [first] = entered(sale, [buyer])
    keys = LedgerKeys(sale.pk)
    take_back(first)
    DrawEntry.objects.all().delete()  # as if the process had died before its row
    [second] = entered(sale, [buyer])
    assert ledger_connection().zcard(keys.fresh) == 3
    store_entries(sale_id=sale.pk)
    assert listed(sale) == [second.order_id]


def test_withdrawal_survives_a_rebuild() -> None:
    sale, [token] = entered_draw([make_buyer()])
    store_entries(sale_id=sale.pk)
    take_back(token)
    ledger_connection().unlink(*LedgerKeys(sale.pk).movable)
    load_sale(sale_id=sale.pk)
    assert in_redis(sale) == []
    enter(token)
    assert in_redis(sale) == []


def test_nobody_withdraws_after_the_end_or_another_entry() -> None:
    sale, buyers = make_draw(), make_buyers(2)
    tokens = entered(sale, buyers)
    with pytest.raises(NoEntry):
        take_back(tokens[0]._replace(user_id=buyers[1].pk))
    end(sale)
    with pytest.raises(SaleEnded):
        take_back(tokens[0])
    assert in_redis(sale) == ids(tokens)


def test_withdrawing_after_the_entries_expired_keeps_the_ledger() -> None:
    sale, [token] = entered_draw([make_buyer()])
    end(sale)
    ledger_connection().delete(LedgerKeys(sale.pk).entries)  # as an hour later
    with pytest.raises(SaleEnded):
        take_back(token)
    assert snapshot(sale_id=sale.pk).entries == 0


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_ended_hash_of_a_wrong_type_takes_no_entry(guarded: bool, drop_guard: DropGuard) -> None:
    if not guarded:
        drop_guard(entering, "_ENTER", " or sale.plain == '0' and not others_are_whole()")
    sale, [token] = entered_draw([make_buyer()])
    take_back(token)
    ledger_connection().set(LedgerKeys(sale.pk).ended, "x")

    with pytest.raises(NotLoaded if guarded else LedgerUnavailable):
        enter(token)


# --- Closing --------------------------------------------------------------------------------------


def test_list_is_not_closed_before_the_end() -> None:
    sale, _ = entered_draw(make_buyers(1))
    take_due_steps(sale_id=sale.pk)
    assert Draw.of(sale).closed_at is None
    assert len(listed(sale)) == 1


def test_close_lists_what_only_redis_has() -> None:
    sale, tokens = entered_draw(make_buyers(2), stock=2)
    store_entries(sale_id=sale.pk)
    tokens += entered(sale, make_buyers(3))
    ledger_connection().delete(LedgerKeys(sale.pk).fresh)
    end(sale)
    assert close_list(sale_id=sale.pk)
    draw = Draw.of(sale)
    assert listed(sale) == ids(tokens)
    assert (draw.entries, draw.units) == (5, 2)


def test_closing_again_changes_nothing() -> None:
    sale, _ = entered_draw(make_buyers(2))
    end(sale)
    close_list(sale_id=sale.pk)
    before = Draw.objects.values().get()
    SeckillVoucher.objects.filter(pk=sale.pk).update(stock=9)
    assert close_list(sale_id=sale.pk)
    assert Draw.objects.values().get() == before


def test_close_loads_a_lost_ledger() -> None:
    sale, tokens = entered_draw(make_buyers(2))
    store_entries(sale_id=sale.pk)
    end(sale)
    lose_state(sale.pk)
    assert close_list(sale_id=sale.pk)
    assert listed(sale) == ids(tokens)


def test_entry_that_comes_back_late_is_not_listed() -> None:
    sale, buyer = make_draw(), make_buyer()
    [token] = entered(sale, [buyer])
    entries, fresh = LedgerKeys(sale.pk).entries, LedgerKeys(sale.pk).fresh
    member = ledger_connection().zrange(fresh, 0, 0)[0]
    ledger_connection().delete(fresh)
    ledger_connection().hdel(entries, str(buyer.pk))
    end(sale)
    close_list(sale_id=sale.pk)
    ledger_connection().zadd(fresh, {member: 1})  # an older copy of Redis
    store_entries(sale_id=sale.pk)
    assert listed(sale) == []
    assert DrawEntry.objects.get(pk=token.order_id).outcome == "ended"


# --- Replicas -------------------------------------------------------------------------------------


def test_entry_without_its_replica_is_kept_and_told_as_unknown(settings: Settings) -> None:
    sale, [buyer] = make_draw(), make_buyers(1)
    token = token_for(sale, buyer)
    settings.SECKILL_LEDGER_REPLICAS, settings.SECKILL_LEDGER_REPLICAS_MS = 1, 1  # no replica
    for _ in range(2):  # repeated on any connection
        with pytest.raises(NotReplicated):
            enter(token)
    assert in_redis(sale) == [token.order_id]
    store_entries(sale_id=sale.pk)
    assert listed(sale) == [token.order_id]
