"""reserve, confirm and release by the contracts above their scripts, on a real Redis."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

import pytest
import time_machine

from tests.support.sales import all_pending, open_ledger, redis_now_ms, reserve_entry, why_ended
from vouchers.inventory import reservations
from vouchers.inventory.batch_journal import count_attempt
from vouchers.inventory.keys import Holding, LedgerKeys, LedgerUnavailable, NotLoaded, ledger_script
from vouchers.inventory.reservations import (
    ACKNOWLEDGED_KICK_MS,
    ENDED_RETENTION_MS,
    AlreadyOrdered,
    NotStarted,
    PendingEntry,
    Release,
    SaleEnded,
    SalePaused,
    SoldOut,
    StillPending,
    acknowledge_kick,
    claim,
    claim_due_sweeps,
    clear_kick,
    confirm,
    held_order_ids,
    pending_entries,
    release,
    reserve,
    set_kick,
)
from vouchers.inventory.sale_state import snapshot, write_terms

ABOVE_53_BITS = 9_007_199_254_740_993
CONTENTS = ("sale", "buyers", "pending", "ended", "tries", "barred", "waiting")


# --- reserve: accepted ---------------------------------------------------------------------------


def test_an_accepted_buyer_is_written_to_buyers_and_pending_in_one_call(ledger):
    keys = open_ledger(1)
    before_ms = redis_now_ms()

    reserve(sale_id=1, order_id=501, user_id=7)

    assert ledger.hgetall(keys.buyers) == {"epoch": "1", "7:1": "501"}
    [(member, accepted_at_ms)] = ledger.zrange(keys.pending, 0, -1, withscores=True)
    assert member == "501:7:1"
    assert before_ms <= accepted_at_ms <= redis_now_ms()


def test_the_same_order_id_is_accepted_again_and_nothing_is_written(dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    again = reserve(sale_id=1, order_id=501, user_id=7)

    assert again.order_id == 501
    assert not again.kick_due
    assert dump() == before


def test_an_order_id_that_ended_is_accepted_again_and_reserves_nothing(ledger, dump):
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(entry, "sold_out")])
    before = dump()

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501

    assert dump() == before


def test_an_ended_order_id_of_another_buyer_answers_for_nothing():
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=77)
    release(sale_id=1, releases=[Release(entry, "sold_out")])

    reserve(sale_id=1, order_id=501, user_id=7)

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]


@pytest.mark.parametrize("user_id", [7, ABOVE_53_BITS])
def test_ids_above_53_bits_come_back_digit_by_digit(user_id):
    open_ledger(1, limit=2)
    order_id = ABOVE_53_BITS + 2

    assert reserve(sale_id=1, order_id=order_id, user_id=user_id).order_id == order_id
    reserve(sale_id=1, order_id=order_id + 2, user_id=user_id)

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=order_id + 4, user_id=user_id)
    assert refused.value.order_id == order_id
    assert held_order_ids(sale_id=1, user_id=user_id, limit=2) == [order_id, order_id + 2]
    entries = {(entry.order_id, entry.user_id) for entry in all_pending(sale_id=1)}
    assert entries == {(order_id, user_id), (order_id + 2, user_id)}


def test_two_ids_that_are_one_as_a_double_are_two_orders():
    open_ledger(1, limit=2)

    reserve(sale_id=1, order_id=ABOVE_53_BITS - 1, user_id=7)
    reserve(sale_id=1, order_id=ABOVE_53_BITS, user_id=7)

    assert held_order_ids(sale_id=1, user_id=7, limit=2) == [ABOVE_53_BITS - 1, ABOVE_53_BITS]


def test_a_limit_above_one_gives_each_order_a_unit_of_its_own():
    open_ledger(1, limit=3)

    for order_id in (501, 502, 503):
        reserve(sale_id=1, order_id=order_id, user_id=7)

    assert {(entry.order_id, entry.unit) for entry in all_pending(sale_id=1)} == {
        (501, 1),
        (502, 2),
        (503, 3),
    }
    with pytest.raises(AlreadyOrdered):
        reserve(sale_id=1, order_id=504, user_id=7)


def test_with_a_limit_above_one_each_earlier_id_is_accepted_again(dump):
    open_ledger(1, limit=3)
    for order_id in (501, 502, 503):
        reserve(sale_id=1, order_id=order_id, user_id=7)
    before = dump()

    for order_id in (503, 501, 502):
        reserve(sale_id=1, order_id=order_id, user_id=7)

    assert dump() == before


def test_a_unit_given_back_in_the_middle_is_the_next_to_be_taken():
    open_ledger(1, limit=3)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=7) for n in (1, 2, 3)]
    release(sale_id=1, releases=[Release(entries[1], "cancelled")])

    reserve(sale_id=1, order_id=504, user_id=7)

    assert held_order_ids(sale_id=1, user_id=7, limit=3) == [501, 504, 503]


def test_the_largest_limit_is_reached_exactly():
    open_ledger(1, total=100, limit=20)

    for order_id in range(501, 521):
        reserve(sale_id=1, order_id=order_id, user_id=7)

    with pytest.raises(AlreadyOrdered):
        reserve(sale_id=1, order_id=521, user_id=7)


def test_the_stock_is_given_out_exactly():
    open_ledger(1, total=3)

    for user_id in (1, 2, 3):
        reserve(sale_id=1, order_id=500 + user_id, user_id=user_id)

    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=504, user_id=4)
    assert snapshot(sale_id=1).taken == 3


def too_late(*, user_id: int) -> SoldOut:
    with pytest.raises(SoldOut) as refused:
        reserve(sale_id=1, order_id=900 + user_id, user_id=user_id)
    return refused.value


def test_who_comes_too_late_is_told_when_they_came_and_when_the_last_unit_went():
    open_ledger(1, total=2)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2)]
    before_ms = redis_now_ms()

    refusal = too_late(user_id=3)

    assert refusal.sold_out_at_ms == entries[1].accepted_at_ms
    assert before_ms <= refusal.arrived_at_ms <= redis_now_ms()


def test_a_unit_that_came_back_and_went_again_moves_the_moment(ledger):
    keys = open_ledger(1, total=1)
    first = reserve_entry(sale_id=1, order_id=501, user_id=1)
    ledger.hset(keys.sale, "sold_out_at_ms", 1)
    release(sale_id=1, releases=[Release(first, "cancelled")])
    second = reserve_entry(sale_id=1, order_id=502, user_id=2)

    assert too_late(user_id=3).sold_out_at_ms == second.accepted_at_ms


def test_where_no_unit_was_ever_sold_nobody_knows_when_the_last_one_went():
    open_ledger(1, total=0)

    assert too_late(user_id=1).sold_out_at_ms is None


def test_a_kick_is_due_once_until_its_task_has_come_and_looks_for_the_last_time():
    open_ledger(1)

    assert reserve(sale_id=1, order_id=501, user_id=1).kick_due
    assert not reserve(sale_id=1, order_id=502, user_id=2).kick_due
    acknowledge_kick(sale_id=1)
    clear_kick(sale_id=1)
    assert reserve(sale_id=1, order_id=503, user_id=3).kick_due


def test_a_kick_stands_as_long_as_it_was_told(ledger, settings):
    settings.SECKILL_KICK_MS = 1234
    keys = open_ledger(1)

    reserve(sale_id=1, order_id=501, user_id=1)

    assert 0 < ledger.pttl(keys.kick) <= 1234


def test_two_sales_know_nothing_of_each_other():
    open_ledger(1)
    open_ledger(11)

    reserve(sale_id=1, order_id=501, user_id=7)
    reserve(sale_id=11, order_id=502, user_id=7)

    assert snapshot(sale_id=1).taken == snapshot(sale_id=11).taken == 1


# --- reserve: refused ----------------------------------------------------------------------------


def past(ms: int = 0) -> int:
    return redis_now_ms() - ms


def coming(ms: int = 60_000) -> int:
    return redis_now_ms() + ms


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (lambda: {"paused": 1}, SalePaused),
        (lambda: {"begins_at_ms": coming()}, NotStarted),
        (lambda: {"ends_at_ms": past()}, SaleEnded),
        (lambda: {"total": 0}, SoldOut),
    ],
)
def test_each_refusal_has_its_name_and_writes_nothing(dump, changes, refusal):
    open_ledger(1, **changes())
    before = dump()

    with pytest.raises(refusal):
        reserve(sale_id=1, order_id=501, user_id=7)

    assert dump() == before


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        (lambda: {"ends_at_ms": past(), "paused": 1, "total": 0}, SaleEnded),
        (lambda: {"paused": 1, "begins_at_ms": coming(), "total": 0}, SalePaused),
        (lambda: {"begins_at_ms": coming(), "total": 0}, NotStarted),
    ],
)
def test_of_several_reasons_the_first_of_the_contract_is_said(changes, first):
    open_ledger(1, **changes())

    with pytest.raises(first):
        reserve(sale_id=1, order_id=501, user_id=7)


CLOSED = [
    lambda: {"ends_at_ms": past()},
    lambda: {"paused": 1},
    lambda: {"begins_at_ms": coming()},
    lambda: {"total": 1},
]


@pytest.mark.parametrize("changes", CLOSED)
def test_who_has_ordered_hears_that_first_also_when_sold_out_or_closed(ledger, dump, changes):
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.hset(keys.sale, mapping=changes())
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501
    assert dump() == before


@pytest.mark.parametrize("changes", CLOSED)
def test_the_same_order_id_gets_its_success_also_when_sold_out_or_closed(ledger, changes):
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.hset(keys.sale, mapping=changes())

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501


def test_the_window_goes_by_the_clock_of_redis_not_of_the_web_process():
    open_ledger(1)
    open_ledger(2, begins_at_ms=coming())

    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)):
        reserve(sale_id=1, order_id=501, user_id=7)
        with pytest.raises(NotStarted):
            reserve(sale_id=2, order_id=502, user_id=7)


def test_a_sale_is_open_from_its_first_millisecond_to_before_its_end():
    now_ms = redis_now_ms()
    open_ledger(1, begins_at_ms=now_ms)
    reserve(sale_id=1, order_id=501, user_id=7)

    open_ledger(2, ends_at_ms=redis_now_ms())
    with pytest.raises(SaleEnded):
        reserve(sale_id=2, order_id=502, user_id=7)


# --- reserve: who has had an order ---------------------------------------------------------------


def end_order(*, order_id=501, user_id=7):
    """Let a buyer have an order that is over, as cancelling leaves it; return its entry."""
    entry = reserve_entry(sale_id=1, order_id=order_id, user_id=user_id)
    confirm(sale_id=1, entries=[entry])
    release(sale_id=1, releases=[Release(entry, "cancelled", had_order=True)])
    return entry


def test_who_has_had_an_order_is_refused_with_it_where_that_bars_another(dump):
    open_ledger(1, rebuy=0)
    end_order()
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501
    assert dump() == before


def test_who_has_had_an_order_may_buy_again_where_the_sale_says_so():
    open_ledger(1, rebuy=1)
    end_order()

    reserve(sale_id=1, order_id=502, user_id=7)

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [502]


def test_who_was_only_refused_is_not_barred(ledger):
    keys = open_ledger(1, rebuy=0)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(entry, "failed")])

    reserve(sale_id=1, order_id=502, user_id=7)

    assert not ledger.exists(keys.barred)


def test_nobody_is_barred_by_another_buyers_order():
    open_ledger(1, rebuy=0)
    end_order(user_id=77)

    reserve(sale_id=1, order_id=502, user_id=7)


def test_with_a_limit_above_one_an_order_that_is_over_bars_the_units_left():
    open_ledger(1, rebuy=0, limit=3)
    reserve(sale_id=1, order_id=500, user_id=7)
    reserve(sale_id=1, order_id=501, user_id=7)
    first = all_pending(sale_id=1)[0]

    reserve(sale_id=1, order_id=502, user_id=7)
    release(sale_id=1, releases=[Release(first, "cancelled", had_order=True)])

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=503, user_id=7)
    assert refused.value.order_id == 500
    assert held_order_ids(sale_id=1, user_id=7, limit=3) == [501, 502]


def test_who_has_the_limit_hears_of_the_order_that_is_held_not_of_the_one_that_is_over(ledger):
    keys = open_ledger(1, rebuy=0)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.hset(keys.barred, "7", "400")

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501


def test_the_token_of_an_order_that_is_over_is_accepted_again_also_where_it_bars(dump):
    open_ledger(1, rebuy=0, limit=2)
    reserve(sale_id=1, order_id=500, user_id=7)
    end_order()
    before = dump()

    for order_id in (500, 501):
        again = reserve(sale_id=1, order_id=order_id, user_id=7)
        assert (again.order_id, again.kick_due) == (order_id, False)

    assert dump() == before


@pytest.mark.parametrize("changes", CLOSED)
def test_who_is_barred_hears_that_first_also_when_sold_out_or_closed(ledger, changes):
    keys = open_ledger(1, rebuy=0)
    end_order()
    ledger.hset(keys.sale, mapping={**changes(), "total": 0})

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501


def test_who_is_barred_may_buy_once_the_sale_allows_it():
    open_ledger(1, rebuy=0)
    end_order()
    with pytest.raises(AlreadyOrdered):
        reserve(sale_id=1, order_id=502, user_id=7)

    write_terms(sale_id=1, terms=replace(snapshot(sale_id=1).terms, rebuy=True))

    reserve(sale_id=1, order_id=502, user_id=7)


def test_an_id_above_53_bits_bars_digit_by_digit():
    open_ledger(1, rebuy=0)
    end_order(order_id=ABOVE_53_BITS, user_id=ABOVE_53_BITS + 2)

    reserve(sale_id=1, order_id=501, user_id=ABOVE_53_BITS + 1)
    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=ABOVE_53_BITS + 2)
    assert refused.value.order_id == ABOVE_53_BITS


# --- reserve: not loaded -------------------------------------------------------------------------


def lose_the_sale(ledger, keys):
    ledger.delete(keys.sale)


def lose_the_buyers(ledger, keys):
    ledger.delete(keys.buyers)


def lose_the_sentinel(ledger, keys):
    ledger.hdel(keys.buyers, "epoch")


def keep_the_buyers_of_an_older_epoch(ledger, keys):
    ledger.hset(keys.buyers, "epoch", 0)


def make_wrong(name):
    def break_it(ledger, keys):
        key = getattr(keys, name)
        ledger.delete(key)
        ledger.set(key, "of a wrong type")

    break_it.__name__ = f"make_{name}_a_string"
    return break_it


def lose_a_field(name):
    def break_it(ledger, keys):
        ledger.hdel(keys.sale, name)

    break_it.__name__ = f"lose_{name}"
    return break_it


BREAKS = [
    lose_the_sale,
    lose_the_buyers,
    lose_the_sentinel,
    keep_the_buyers_of_an_older_epoch,
    *[make_wrong(name) for name in CONTENTS],
    *[
        lose_a_field(name)
        for name in (
            "epoch",
            "total",
            "limit",
            "paused",
            "rebuy",
            "begins_at_ms",
            "ends_at_ms",
            "loaded_at_ms",
        )
    ],
]


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda f: f.__name__)
def test_a_ledger_that_is_not_whole_is_not_loaded_and_nothing_is_written(ledger, dump, break_it):
    keys = open_ledger(1)
    break_it(ledger, keys)
    before = dump()

    with pytest.raises(NotLoaded):
        reserve(sale_id=1, order_id=501, user_id=7)

    assert dump() == before


def test_lost_buyers_do_not_look_like_an_unsold_sale(ledger):
    keys = open_ledger(1, total=1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.delete(keys.buyers)

    with pytest.raises(NotLoaded):
        reserve(sale_id=1, order_id=502, user_id=8)


def test_without_the_sentinel_lost_buyers_would_be_sold_again(ledger, script_without, monkeypatch):
    """The control of the test above."""
    guard = "if redis.call('HGET', KEYS[2], 'epoch') ~= sale.epoch then return nil end"
    monkeypatch.setattr(reservations, "_RESERVE", script_without("reserve", guard, ""))
    keys = open_ledger(1, total=2)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.delete(keys.buyers)

    assert reserve(sale_id=1, order_id=502, user_id=8).order_id == 502


def test_a_redis_that_does_not_answer_means_unknown(redis_gone):
    with redis_gone(), pytest.raises(LedgerUnavailable):
        reserve(sale_id=1, order_id=501, user_id=7)


def test_the_codes_of_the_script_are_those_of_its_wrapper():
    source = ledger_script("reserve").source

    assert set(re.findall(r"return \{?'([A-Z_]+)'", source)) == set(reservations.ReserveCode)


# --- confirm -------------------------------------------------------------------------------------


def test_a_confirmed_entry_leaves_pending_and_keeps_its_buyer(ledger):
    keys = open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    reserve(sale_id=1, order_id=502, user_id=8)
    count_attempt(sale_id=1, order_id=501)

    confirm(sale_id=1, entries=[entry])

    assert [left.order_id for left in all_pending(sale_id=1)] == [502]
    assert ledger.hget(keys.buyers, "7:1") == "501"
    assert not ledger.exists(keys.tries)


def test_a_replayed_confirmation_changes_nothing(dump):
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    confirm(sale_id=1, entries=[entry])
    before = dump()

    confirm(sale_id=1, entries=[entry])

    assert dump() == before


def test_releasing_nothing_asks_redis_nothing(ledger_trips):
    release(sale_id=1, releases=[])

    assert ledger_trips == []


# --- release -------------------------------------------------------------------------------------


def test_a_release_puts_the_unit_back_and_remembers_why(ledger):
    keys = open_ledger(1, total=1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    count_attempt(sale_id=1, order_id=501)

    release(sale_id=1, releases=[Release(entry, "inactive_buyer")])

    assert snapshot(sale_id=1).remaining == 1
    assert all_pending(sale_id=1) == []
    assert why_ended(sale_id=1, order_id=501) == "7:inactive_buyer"
    assert not ledger.exists(keys.tries)


@pytest.mark.parametrize("had_order", [False, True])
def test_a_replayed_release_changes_nothing(dump, had_order):
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    released = Release(entry, "cancelled", had_order=had_order)
    release(sale_id=1, releases=[released])
    before = dump()

    release(sale_id=1, releases=[released])

    assert dump() == before


def release_and_order_again() -> PendingEntry:
    """Release an order and let its buyer reserve again; return the entry of the first one."""
    open_ledger(1)
    first = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(first, "cancelled")])
    reserve(sale_id=1, order_id=502, user_id=7)
    return first


def test_a_replayed_release_does_not_delete_a_newer_reservation():
    first = release_and_order_again()

    release(sale_id=1, releases=[Release(first, "cancelled")])

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [502]
    assert [entry.order_id for entry in all_pending(sale_id=1)] == [502]


def test_without_its_guard_a_replayed_release_deletes_a_newer_reservation(
    script_without, monkeypatch
):
    """The control of the test above."""
    guard = "if redis.call('HGET', KEYS[2], field) == order_id then"
    monkeypatch.setattr(reservations, "_RELEASE", script_without("release", guard, "if true then"))
    first = release_and_order_again()

    release(sale_id=1, releases=[Release(first, "cancelled")])

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == []


def test_a_release_puts_the_live_order_in_its_place():
    open_ledger(1, total=1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)

    release(sale_id=1, releases=[Release(entry, "already_ordered", live_order_id=400)])

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [400]
    assert snapshot(sale_id=1).remaining == 0
    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)
    assert refused.value.order_id == 400


def test_a_replayed_release_with_a_live_order_leaves_it_there():
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    replaced = Release(entry, "already_ordered", live_order_id=400)
    release(sale_id=1, releases=[replaced])

    release(sale_id=1, releases=[replaced])

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [400]


def test_several_releases_go_in_one_call(ledger_trips):
    open_ledger(1, total=3)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2, 3)]
    release(sale_id=1, releases=[Release(entries[0], "sold_out")])
    ledger_trips.clear()

    release(sale_id=1, releases=[Release(entry, "sold_out") for entry in entries[1:]])

    assert len(ledger_trips) == 1
    assert snapshot(sale_id=1).remaining == 3


def test_of_several_releases_each_buyer_who_has_had_an_order_is_noted(ledger):
    keys = open_ledger(1, total=3)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2, 3)]
    had = (True, False, True)

    release(
        sale_id=1,
        releases=[
            Release(entry, "cancelled", had_order=had_order)
            for entry, had_order in zip(entries, had, strict=True)
        ],
    )

    assert ledger.hgetall(keys.barred) == {"1": "501", "3": "503"}


def test_a_release_makes_no_sale_where_the_ledger_was_lost(ledger):
    keys = LedgerKeys(1)
    entry = PendingEntry(501, 7, 1, redis_now_ms())

    release(sale_id=1, releases=[Release(entry, "sold_out", had_order=True)])

    assert not ledger.exists(keys.sale, keys.buyers, keys.pending, keys.barred, keys.waiting)
    assert why_ended(sale_id=1, order_id=501) == "7:sold_out"


def test_ended_ids_are_kept_an_hour_longer_than_any_token(ledger, settings):
    ends_at_ms = coming(600_000)
    keys = open_ledger(1, ends_at_ms=ends_at_ms)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)

    release(sale_id=1, releases=[Release(entry, "sold_out")])

    kept_until_ms = redis_now_ms() + ledger.pttl(keys.ended)
    hour_after_tokens_ms = ends_at_ms + settings.SECKILL_TOKEN_GRACE_MS + 3_600_000
    assert abs(kept_until_ms - hour_after_tokens_ms) < 100


def test_ended_ids_of_a_sale_that_is_over_are_kept_from_now_on(ledger):
    keys = open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    ledger.hset(keys.sale, "ends_at_ms", past(86_400_000))

    release(sale_id=1, releases=[Release(entry, "sold_out")])

    assert abs(ledger.pttl(keys.ended) - ENDED_RETENTION_MS) < 100


def test_an_earlier_end_does_not_forget_ended_ids_sooner(ledger):
    keys = open_ledger(1, ends_at_ms=coming(86_400_000))
    first, second = (reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2))
    release(sale_id=1, releases=[Release(first, "sold_out")])
    kept_ms = ledger.pttl(keys.ended)
    ledger.hset(keys.sale, "ends_at_ms", coming(60_000))

    release(sale_id=1, releases=[Release(second, "sold_out")])

    assert abs(ledger.pttl(keys.ended) - kept_ms) < 100


# --- what the back half reads --------------------------------------------------------------------


def test_pending_entries_come_oldest_first_past_those_skipped(ledger):
    keys = open_ledger(1)
    ledger.zadd(keys.pending, {"503:3:1": 300, "501:1:1": 100, "502:2:2": 200})

    assert pending_entries(sale_id=1, skip=0, count=2) == [
        PendingEntry(501, 1, 1, 100),
        PendingEntry(502, 2, 2, 200),
    ]
    assert pending_entries(sale_id=1, skip=2, count=2) == [PendingEntry(503, 3, 1, 300)]
    assert pending_entries(sale_id=1, skip=3, count=2) == []
    assert [entry.order_id for entry in all_pending(sale_id=1)] == [501, 502, 503]


def test_the_text_of_an_entry_is_what_reserve_wrote(ledger):
    keys = open_ledger(1)

    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)

    assert ledger.zscore(keys.pending, entry.member) == entry.accepted_at_ms


def test_thousands_of_entries_are_confirmed_in_one_call(ledger):
    """More than ``unpack`` in Redis takes, which is some 8,000."""
    keys = LedgerKeys(1)
    entries = [PendingEntry(order_id, order_id, 1, order_id) for order_id in range(1, 9_002)]
    ledger.zadd(keys.pending, {entry.member: entry.accepted_at_ms for entry in entries})
    ledger.hset(keys.tries, mapping={entry.order_id: 1 for entry in entries})
    rows = {order_id: str(order_id) for order_id in (1, 1_000, 1_001, 9_000, 9_001)}

    confirm(sale_id=1, entries=entries[:-1], rows=rows)

    assert all_pending(sale_id=1) == entries[-1:]
    assert ledger.hkeys(keys.tries) == ["9001"]
    even, odd = map(ledger.hgetall, keys.copies)
    assert even | odd == {str(order_id): rows[order_id] for order_id in (1, 1_000, 1_001, 9_000)}


def test_tries_are_counted_order_by_order():
    assert [count_attempt(sale_id=1, order_id=501) for _ in range(3)] == [1, 2, 3]
    assert count_attempt(sale_id=1, order_id=502) == 1


def test_a_kick_is_given_once_until_its_time_is_over(ledger, settings):
    settings.SECKILL_KICK_MS = 60_000

    assert set_kick(sale_id=1)
    assert not set_kick(sale_id=1)
    assert 0 < ledger.pttl(LedgerKeys(1).kick) <= 60_000
    ledger.delete(LedgerKeys(1).kick)
    assert set_kick(sale_id=1)


def test_a_kick_that_is_taken_stands_a_moment_for_reservations_and_not_for_who_hands_on(ledger):
    keys = open_ledger(1)
    acknowledge_kick(sale_id=1)
    assert not ledger.exists(keys.kick), "there was none to take"

    set_kick(sale_id=1)
    acknowledge_kick(sale_id=1)

    assert 0 < ledger.pttl(keys.kick) <= ACKNOWLEDGED_KICK_MS
    assert not reserve(sale_id=1, order_id=501, user_id=1).kick_due
    assert set_kick(sale_id=1)
    assert ledger.pttl(keys.kick) > ACKNOWLEDGED_KICK_MS


def test_only_a_kick_that_is_taken_can_be_ended(ledger):
    keys = open_ledger(1)
    set_kick(sale_id=1)
    clear_kick(sale_id=1)
    assert ledger.exists(keys.kick), "its task is still to come"

    acknowledge_kick(sale_id=1)
    clear_kick(sale_id=1)
    assert reserve(sale_id=1, order_id=501, user_id=1).kick_due


def test_a_sale_is_due_by_its_oldest_entry_and_the_clock_of_redis(ledger):
    now_ms = redis_now_ms()
    ledger.zadd(LedgerKeys(1).pending, {"501:1:1": now_ms - 10_000, "502:2:1": now_ms})
    ledger.zadd(LedgerKeys(2).pending, {"503:1:1": now_ms})
    ledger.set(LedgerKeys(4).pending, "of a wrong type")

    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        assert claim_due_sweeps(sale_ids=[1, 2, 3, 4]) == [1]
    assert ledger.exists(LedgerKeys(1).kick)


def test_a_sale_on_its_way_is_not_due(ledger):
    ledger.zadd(LedgerKeys(1).pending, {"501:1:1": redis_now_ms() - 10_000})
    assert set_kick(sale_id=1)
    assert claim_due_sweeps(sale_ids=[1]) == []


def test_the_pause_doubles_while_the_oldest_entry_stays_up_to_a_cap_and_starts_again(
    ledger, settings
):
    settings.SECKILL_SWEEP_AGE_MS, settings.SECKILL_SWEEP_PAUSE_MS = 2_000, 5_000
    keys = LedgerKeys(1)
    ledger.zadd(keys.pending, {"501:1:1": redis_now_ms() - 90_000})

    def due_again():
        """Say whether it is due, once its pause is over."""
        ledger.delete(keys.kick)
        if ledger.exists(keys.swept):
            assert claim_due_sweeps(sale_ids=[1]) == []
            ledger.hset(keys.swept, "due", redis_now_ms())
        return claim_due_sweeps(sale_ids=[1]) == [1]

    pauses = []
    for _ in range(4):
        assert due_again()
        pauses.append(int(ledger.hget(keys.swept, "pause")))
    assert pauses == [2_000, 4_000, 5_000, 5_000]
    assert ledger.pttl(keys.swept) > 5_000

    ledger.delete(keys.kick)
    ledger.zrem(keys.pending, "501:1:1")
    ledger.zadd(keys.pending, {"502:2:1": redis_now_ms() - 60_000})
    assert claim_due_sweeps(sale_ids=[1]) == [1]
    assert ledger.hget(keys.swept, "pause") == "2000"


def test_no_sale_at_all_is_due():
    assert claim_due_sweeps(sale_ids=[]) == []


# --- claim ---------------------------------------------------------------------------------------


def set_aside_entry(*, order_id=501, user_id=7):
    """Reserve a unit, let it fail once, and give it back as fulfilment sets an entry aside."""
    entry = reserve_entry(sale_id=1, order_id=order_id, user_id=user_id)
    release(sale_id=1, releases=[Release(entry, "failed")])
    count_attempt(sale_id=1, order_id=order_id)
    return entry


def test_a_claim_takes_the_unit_under_its_id_and_forgets_its_end_and_tries(ledger):
    keys = open_ledger(1)
    entry = set_aside_entry()

    claim(sale_id=1, holding=entry)

    assert ledger.hgetall(keys.buyers) == {"epoch": "1", "7:1": "501"}
    assert not ledger.exists(keys.pending, keys.ended, keys.tries)
    assert snapshot(sale_id=1).remaining == 4


def test_a_claim_leaves_what_ended_or_failed_under_other_ids(ledger):
    keys = open_ledger(1)
    entry, _ = set_aside_entry(), set_aside_entry(order_id=502, user_id=8)

    claim(sale_id=1, holding=entry)

    assert ledger.hgetall(keys.ended) == {"502": "8:failed"}
    assert ledger.hgetall(keys.tries) == {"502": "1"}


@pytest.mark.parametrize("total", [1, 5])
def test_a_claim_made_again_is_answered_the_same_and_writes_nothing(dump, total):
    open_ledger(1, total=total)
    entry = set_aside_entry()
    claim(sale_id=1, holding=entry)
    before = dump()

    claim(sale_id=1, holding=entry)

    assert dump() == before


def test_a_claim_with_an_id_above_53_bits_holds_every_digit(ledger):
    keys = open_ledger(1)

    claim(sale_id=1, holding=Holding(ABOVE_53_BITS, ABOVE_53_BITS + 2, 1))

    held = ledger.hgetall(keys.buyers)
    assert held[f"{ABOVE_53_BITS + 2}:1"] == str(ABOVE_53_BITS)


def test_a_claim_of_a_unit_at_which_another_order_stands_names_it_and_writes_nothing(dump):
    open_ledger(1)
    entry = set_aside_entry()
    reserve(sale_id=1, order_id=601, user_id=7)
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        claim(sale_id=1, holding=entry)

    assert refused.value.order_id == 601
    assert dump() == before


def test_a_claim_is_of_its_unit_and_not_of_the_buyers_others(ledger):
    keys = open_ledger(1, limit=2)
    set_aside_entry()
    reserve(sale_id=1, order_id=601, user_id=7)

    claim(sale_id=1, holding=Holding(501, 7, 2))

    assert ledger.hgetall(keys.buyers) == {"epoch": "1", "7:1": "601", "7:2": "501"}


def test_a_claim_of_a_unit_that_was_sold_on_is_refused_and_writes_nothing(dump):
    open_ledger(1, total=1)
    entry = set_aside_entry()
    reserve(sale_id=1, order_id=601, user_id=8)
    before = dump()

    with pytest.raises(SoldOut):
        claim(sale_id=1, holding=entry)

    assert dump() == before


def test_a_claim_while_the_order_is_pending_is_refused_and_writes_nothing(dump):
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    before = dump()

    with pytest.raises(StillPending):
        claim(sale_id=1, holding=entry)

    assert dump() == before


def test_control_without_that_a_late_release_takes_the_claimed_unit_away(
    ledger, monkeypatch, script_without
):
    keys = open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    guard = "redis.call('ZSCORE', KEYS[3], order_id .. ':' .. field)"
    monkeypatch.setattr(reservations, "_CLAIM", script_without("claim", guard, "false"))

    claim(sale_id=1, holding=entry)
    release(sale_id=1, releases=[Release(entry, "failed")])

    assert ledger.hgetall(keys.buyers) == {"epoch": "1"}


@pytest.mark.parametrize("changes", [{"paused": 1}, {"ends_at_ms": 1}])
def test_a_claim_asks_neither_for_the_window_nor_for_a_pause(ledger, changes):
    keys = open_ledger(1, **changes)

    claim(sale_id=1, holding=Holding(501, 7, 1))

    assert ledger.hget(keys.buyers, "7:1") == "501"


@pytest.mark.parametrize("key", CONTENTS)
def test_a_claim_from_a_ledger_that_is_not_whole_is_refused_and_writes_nothing(ledger, dump, key):
    keys = open_ledger(1)
    ledger.delete(getattr(keys, key))
    ledger.set(getattr(keys, key), "of a wrong type")
    before = dump()

    with pytest.raises(NotLoaded):
        claim(sale_id=1, holding=Holding(501, 7, 1))

    assert dump() == before


# --- Redis gone ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda: confirm(sale_id=1, entries=[PendingEntry(1, 1, 1, 1)]),
        lambda: release(sale_id=1, releases=[Release(PendingEntry(1, 1, 1, 1), "sold_out")]),
        lambda: held_order_ids(sale_id=1, user_id=1, limit=1),
        lambda: pending_entries(sale_id=1, skip=0, count=1),
        lambda: count_attempt(sale_id=1, order_id=1),
        lambda: claim(sale_id=1, holding=Holding(1, 1, 1)),
        lambda: set_kick(sale_id=1),
        lambda: acknowledge_kick(sale_id=1),
        lambda: clear_kick(sale_id=1),
        lambda: claim_due_sweeps(sale_ids=[1]),
    ],
)
def test_every_question_to_a_redis_that_is_gone_ends_as_unavailable(redis_gone, ask):
    with redis_gone(), pytest.raises(LedgerUnavailable):
        ask()
