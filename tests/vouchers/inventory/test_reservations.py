"""Reserving, confirming, releasing and retaking units, kicks and sweeps, on a real Redis."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
import time_machine
from pytest_django import Settings

from tests.fixtures.vouchers import DropGuard, Dump
from tests.support.inspection import buyer_fields, redis_commands
from tests.support.rooms import OPENED_MS, open_room
from tests.support.sales import (
    all_pending,
    change_state,
    future_ms,
    open_ledger,
    past_ms,
    redis_now_ms,
    reserve,
    reserve_entry,
    why_ended,
)
from vouchers.inventory import reservations, sold_out_cache
from vouchers.inventory.batch_journal import count_failure
from vouchers.inventory.holdings import Holding, held_order_ids
from vouchers.inventory.keys import STATE, LedgerKeys, NotLoaded, OtherSale
from vouchers.inventory.reservations import (
    ENDED_RETENTION_MS,
    AlreadyOrdered,
    NotAdmitted,
    NotReplicated,
    NotStarted,
    PendingEntry,
    PriceChanged,
    Release,
    Reservation,
    SaleBehind,
    SaleEnded,
    SalePaused,
    SoldOut,
    StillPending,
    TooFew,
    acknowledge_kick,
    claim_due_sweeps,
    clear_kick,
    confirm,
    finish_reservation,
    pending_entries,
    release,
    reserve_call,
    retake,
    set_kick,
)
from vouchers.inventory.sale_state import parse_state, snapshot, write_terms

ABOVE_53_BITS = 9_007_199_254_740_993
BLOCK = 29_000_000 << 32 | 0b1111 << 28 | 7 * 64
"""An order id that begins a block."""


# --- reserve: accepted ----------------------------------------------------------------------------


def test_accepted_buyer_is_in_buyers_and_pending(ledger: Any) -> None:
    keys = open_ledger(1)
    before_ms = redis_now_ms()

    reserve(sale_id=1, order_id=501, user_id=7)

    assert buyer_fields(1) == {"7:1": "501"}
    [(member, accepted_at_ms)] = ledger.zrange(keys.pending, 0, -1, withscores=True)
    assert member == "501:7:1"
    assert before_ms <= accepted_at_ms <= redis_now_ms()


def units_of(user_id: int) -> dict[str, str]:
    return {name: it for name, it in buyer_fields(1).items() if name.startswith(f"{user_id}:")}


# --- reserve: several units -----------------------------------------------------------------------


@pytest.mark.parametrize(("all_or_none", "offset"), [(False, 1), (True, 33)])
def test_units_of_a_press_are_pending_together(
    all_or_none: bool, offset: int, ledger: Any, ledger_trips: list[int]
) -> None:
    keys = open_ledger(1, limit=4)
    reserve(sale_id=1, order_id=501, user_id=9)  # the server knows the script
    ledger_trips.clear()

    answer = reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=3, all_or_none=all_or_none)

    assert (answer.order_id, len(ledger_trips)) == (BLOCK, 1)
    ids = [BLOCK, BLOCK + offset, BLOCK + offset + 1]
    assert units_of(7) == {f"7:{unit}": str(it) for unit, it in enumerate(ids, 1)}
    entries = [it for it in all_pending(sale_id=1) if it.user_id == 7]
    assert [(it.order_id, it.unit) for it in entries] == list(zip(ids, (1, 2, 3), strict=True))
    assert len({it.accepted_at_ms for it in entries}) == 1
    assert ledger.zcard(keys.pending) == 4


def test_press_for_one_sends_what_it_always_sent() -> None:
    calls = [reserve_call(sale_id=1, order_id=BLOCK, user_id=7, quantity=it) for it in (1, 2)]
    assert [len(call.args) for call in calls] == [12, 14]


def test_same_token_with_another_quantity_gets_the_first_answer(dump: Dump) -> None:
    open_ledger(1, total=9, limit=9)
    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=2)
    before = dump()

    for quantity, all_or_none in [(1, False), (5, False), (9, True)]:
        again = reserve(
            sale_id=1, order_id=BLOCK, user_id=7, quantity=quantity, all_or_none=all_or_none
        )
        assert again == Reservation(BLOCK, kick_due=False)

    assert dump() == before


def test_ended_first_unit_still_answers_for_its_purchase() -> None:
    open_ledger(1, limit=3)
    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=2)
    release(sale_id=1, releases=[Release(it, "expired") for it in all_pending(sale_id=1)])

    assert reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=3).order_id == BLOCK
    assert buyer_fields(1) == {}


@pytest.mark.parametrize(
    ("total", "limit", "held", "given"), [(3, 9, 0, 3), (9, 4, 2, 2), (5, 6, 3, 2), (9, 9, 0, 5)]
)
def test_buyer_gets_what_is_left(total: int, limit: int, held: int, given: int) -> None:
    open_ledger(1, total=total, limit=limit)
    for n in range(held):
        reserve(sale_id=1, order_id=501 + n, user_id=7)

    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=5)

    assert len(units_of(7)) == held + given
    assert snapshot(sale_id=1).taken == snapshot(sale_id=1).pending == held + given


def test_gaps_between_units_are_filled() -> None:
    open_ledger(1, limit=4)
    for order_id in (501, 502, 503):
        reserve(sale_id=1, order_id=order_id, user_id=7)
    first, second, _ = all_pending(sale_id=1)
    release(sale_id=1, releases=[Release(first, "expired")])

    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=2)

    ids = [BLOCK, second.order_id, 503, BLOCK + 1]
    assert units_of(7) == {f"7:{unit}": str(it) for unit, it in enumerate(ids, 1)}


def test_all_or_none_gets_nothing_when_too_few_are_left(dump: Dump) -> None:
    open_ledger(1, total=2, limit=5)
    before = dump()

    with pytest.raises(TooFew) as refused:
        reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=3, all_or_none=True)

    assert refused.value.left == 2
    assert dump() == before
    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=2, all_or_none=True)
    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=BLOCK + 64, user_id=8, quantity=2, all_or_none=True)


def test_all_or_none_above_the_limit_names_the_held_order(dump: Dump) -> None:
    open_ledger(1, total=9, limit=3)
    with pytest.raises(TooFew):
        reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=4, all_or_none=True)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=3, all_or_none=True)

    assert refused.value.order_id == 501
    assert dump() == before


def test_units_of_the_waiting_list_are_not_left(ledger: Any) -> None:
    keys = open_ledger(1, total=4, limit=5, plain=0, paused=1)
    ledger.zadd(keys.waiting, {"601:8": 1, "602:9": 2})
    change_state(1, paused=0)

    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=5)

    assert {name: int(it) for name, it in buyer_fields(1).items()} == {
        "8:1": 601, "9:1": 602, "7:1": BLOCK, "7:2": BLOCK + 1,
    }  # fmt: skip


def test_last_units_of_press_note_when_sale_sold_out(ledger: Any) -> None:
    keys = open_ledger(1, total=3, limit=3)
    reserve(sale_id=1, order_id=BLOCK, user_id=7, quantity=2)
    assert not parse_state(ledger.hget(keys.buyers, STATE))["sold_out_at_ms"]
    reserve(sale_id=1, order_id=BLOCK + 64, user_id=8, quantity=2)
    assert parse_state(ledger.hget(keys.buyers, STATE))["sold_out_at_ms"]


def test_id_without_a_block_is_good_for_one_unit() -> None:
    open_ledger(1, limit=5)
    with pytest.raises(TooFew) as refused:
        reserve(sale_id=1, order_id=501, user_id=7, quantity=3, all_or_none=True)
    reserve(sale_id=1, order_id=501, user_id=7, quantity=3)

    assert refused.value.left == 1
    assert buyer_fields(1) == {"7:1": "501"}


# --- reserve: other arguments ---------------------------------------------------------------------


@pytest.fixture
def no_replica_answers(settings: Settings) -> None:
    """Wait for a replica, and there is none; tests/faults/test_ledger_replicas.py has real ones."""
    settings.SECKILL_LEDGER_REPLICAS, settings.SECKILL_LEDGER_REPLICAS_MS = 1, 1


def test_reservation_by_default_sends_nothing_for_replicas() -> None:
    call = reserve_call(sale_id=1, order_id=501, user_id=7)

    assert (call.args[6], call.then) == ("", ())


def test_reading_a_reply_remembers_nothing() -> None:
    call = reserve_call(sale_id=1, order_id=501, user_id=7)

    reply = call.read("SOLD_OUT 1000 ")
    assert sold_out_cache.recall_sold_out(sale_id=1) is None

    with pytest.raises(SoldOut):
        finish_reservation(reply)
    assert sold_out_cache.recall_sold_out(sale_id=1)


@pytest.mark.usefixtures("no_replica_answers")
def test_unreplicated_reservation_is_kept(ledger: Any, settings: Settings) -> None:
    keys = open_ledger(1)

    with pytest.raises(NotReplicated, match="0 of 1 replicas have order 501") as first:
        reserve(sale_id=1, order_id=501, user_id=7)
    with pytest.raises(NotReplicated) as again:
        reserve(sale_id=1, order_id=501, user_id=7)

    assert first.value.reservation.kick_due
    assert not again.value.reservation.kick_due
    assert buyer_fields(1) == {"7:1": "501"}
    assert ledger.zrange(keys.pending, 0, -1) == ["501:7:1"]
    settings.SECKILL_LEDGER_REPLICAS = 0
    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501


@pytest.mark.usefixtures("no_replica_answers")
def test_replicas_are_waited_for_in_the_same_round_trip(ledger_trips: list[int]) -> None:
    open_ledger(1)
    for _ in range(2):  # the first teaches the server the script
        ledger_trips.clear()
        with pytest.raises(NotReplicated):
            reserve(sale_id=1, order_id=501, user_id=7)

    assert len(ledger_trips) == 1


@pytest.mark.usefixtures("no_replica_answers")
def test_ended_order_id_also_waits_for_replicas(settings: Settings) -> None:
    open_ledger(1)
    settings.SECKILL_LEDGER_REPLICAS = 0
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(entry, "sold_out")])
    settings.SECKILL_LEDGER_REPLICAS = 1

    with pytest.raises(NotReplicated):
        reserve(sale_id=1, order_id=501, user_id=7)


@pytest.mark.usefixtures("no_replica_answers")
def test_refusal_needs_no_replica() -> None:
    open_ledger(1, total=0)

    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=501, user_id=7)


def test_ended_order_id_is_accepted_again_without_writes(ledger: Any, dump: Dump) -> None:
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(entry, "sold_out")])
    before = dump()

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501

    assert dump() == before


def test_ended_order_id_of_another_buyer_is_ignored() -> None:
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=77)
    release(sale_id=1, releases=[Release(entry, "sold_out")])

    reserve(sale_id=1, order_id=501, user_id=7)

    assert held_order_ids(sale_id=1, user_id=7) == [501]


@pytest.mark.parametrize("user_id", [7, ABOVE_53_BITS])
def test_ids_above_53_bits_are_exact(user_id: int) -> None:
    open_ledger(1, limit=2)
    order_id = ABOVE_53_BITS + 2

    assert reserve(sale_id=1, order_id=order_id, user_id=user_id).order_id == order_id
    reserve(sale_id=1, order_id=order_id + 2, user_id=user_id)

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=order_id + 4, user_id=user_id)
    assert refused.value.order_id == order_id
    assert held_order_ids(sale_id=1, user_id=user_id) == [order_id, order_id + 2]
    entries = {(entry.order_id, entry.user_id) for entry in all_pending(sale_id=1)}
    assert entries == {(order_id, user_id), (order_id + 2, user_id)}


def test_limit_above_one_gives_each_order_its_unit() -> None:
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


@pytest.mark.parametrize("limit", [1, 3])
def test_same_order_ids_are_accepted_again_without_writes(dump: Dump, limit: int) -> None:
    open_ledger(1, limit=limit)
    order_ids = range(501, 501 + limit)
    for order_id in order_ids:
        reserve(sale_id=1, order_id=order_id, user_id=7)
    before = dump()

    for order_id in reversed(order_ids):
        again = reserve(sale_id=1, order_id=order_id, user_id=7)
        assert (again.order_id, again.kick_due) == (order_id, False)

    assert dump() == before


def test_freed_unit_in_the_middle_is_taken_next() -> None:
    open_ledger(1, limit=3)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=7) for n in (1, 2, 3)]
    release(sale_id=1, releases=[Release(entries[1], "cancelled")])

    reserve(sale_id=1, order_id=504, user_id=7)

    assert held_order_ids(sale_id=1, user_id=7) == [501, 504, 503]


def refuse_as_sold_out(*, user_id: int) -> SoldOut:
    with pytest.raises(SoldOut) as refused:
        reserve(sale_id=1, order_id=900 + user_id, user_id=user_id)
    return refused.value


def test_sold_out_carries_arrival_and_time_of_last_unit() -> None:
    open_ledger(1, total=2)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2)]
    before_ms = redis_now_ms()

    refusal = refuse_as_sold_out(user_id=3)

    assert refusal.sold_out_at_ms == entries[1].accepted_at_ms
    assert refusal.arrived_at_ms is not None
    assert before_ms <= refusal.arrived_at_ms <= redis_now_ms()


def test_unit_sold_again_updates_sold_out_time(ledger: Any) -> None:
    keys = open_ledger(1, total=1)
    first = reserve_entry(sale_id=1, order_id=501, user_id=1)
    change_state(keys.sale_id, sold_out_at_ms=1)
    release(sale_id=1, releases=[Release(first, "cancelled")])
    second = reserve_entry(sale_id=1, order_id=502, user_id=2)

    assert refuse_as_sold_out(user_id=3).sold_out_at_ms == second.accepted_at_ms


def test_sale_without_units_has_no_sold_out_time() -> None:
    open_ledger(1, total=0)

    assert refuse_as_sold_out(user_id=1).sold_out_at_ms is None


def test_kick_is_due_once_until_task_clears_it() -> None:
    open_ledger(1)

    assert reserve(sale_id=1, order_id=501, user_id=1).kick_due
    assert not reserve(sale_id=1, order_id=502, user_id=2).kick_due
    acknowledge_kick(sale_id=1)
    clear_kick(sale_id=1)
    assert reserve(sale_id=1, order_id=503, user_id=3).kick_due


def test_kick_expires_after_its_setting(ledger: Any, settings: Any) -> None:
    settings.SECKILL_KICK_MS = 61_234
    keys = open_ledger(1)

    reserve(sale_id=1, order_id=501, user_id=1)

    assert 5_000 < ledger.pttl(keys.kick) <= 61_234


def test_sales_are_independent() -> None:
    open_ledger(1)
    open_ledger(11)

    reserve(sale_id=1, order_id=501, user_id=7)
    reserve(sale_id=11, order_id=502, user_id=7)

    assert snapshot(sale_id=1).taken == snapshot(sale_id=11).taken == 1


# --- reserve: refused -----------------------------------------------------------------------------


REFUSALS = [
    (lambda: {"paused": 1}, SalePaused),
    (lambda: {"begins_at_ms": future_ms()}, NotStarted),
    (lambda: {"ends_at_ms": past_ms()}, SaleEnded),
    (lambda: {"total": 0}, SoldOut),
]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        *REFUSALS,
        (lambda: {"ends_at_ms": past_ms(), "paused": 1, "total": 0}, SaleEnded),
        (lambda: {"paused": 1, "begins_at_ms": future_ms(), "total": 0}, SalePaused),
        (lambda: {"begins_at_ms": future_ms(), "total": 0}, NotStarted),
    ],
)
def test_first_refusal_that_applies_is_raised_without_writes(
    dump: Dump, changes: Callable[[], dict[str, Any]], refusal: type[Exception]
) -> None:
    open_ledger(1, **changes())
    before = dump()

    with pytest.raises(refusal):
        reserve(sale_id=1, order_id=501, user_id=7)

    assert dump() == before


CLOSED = [
    lambda: {"ends_at_ms": past_ms()},
    lambda: {"paused": 1},
    lambda: {"begins_at_ms": future_ms()},
    lambda: {"total": 1},
]


@pytest.mark.parametrize("changes", CLOSED)
def test_already_ordered_comes_before_sold_out_or_closed(
    ledger: Any, dump: Dump, changes: Callable[[], dict[str, Any]]
) -> None:
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    change_state(keys.sale_id, **changes())
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501
    assert dump() == before


@pytest.mark.parametrize("changes", CLOSED)
def test_same_order_id_is_accepted_when_sold_out_or_closed(
    ledger: Any, changes: Callable[[], dict[str, Any]]
) -> None:
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    change_state(keys.sale_id, **changes())

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501


def test_window_is_checked_by_clock_of_redis() -> None:
    open_ledger(1)
    open_ledger(2, begins_at_ms=future_ms())

    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)):
        reserve(sale_id=1, order_id=501, user_id=7)
        with pytest.raises(NotStarted):
            reserve(sale_id=2, order_id=502, user_id=7)


def test_sale_opens_at_start_and_closes_at_end() -> None:
    now_ms = redis_now_ms()
    open_ledger(1, begins_at_ms=now_ms)
    reserve(sale_id=1, order_id=501, user_id=7)

    open_ledger(2, ends_at_ms=redis_now_ms())
    with pytest.raises(SaleEnded):
        reserve(sale_id=2, order_id=502, user_id=7)


def late_entries(ledger: Any, count: int, *, age_ms: int) -> LedgerKeys:
    """Let entries have been pending for this long."""
    keys, at_ms = open_ledger(1, total=1_000_000), past_ms(age_ms)
    buyers = range(1, count + 1)
    ledger.hset(keys.buyers, mapping={f"{n}:1": 500 + n for n in buyers})
    ledger.zadd(keys.pending, {f"{500 + n}:{n}:1": at_ms for n in buyers})
    return keys


@pytest.mark.parametrize(
    ("confirmed", "is_accepted"),
    [pytest.param(1_000, True, id="in 4 s"), pytest.param(200, False, id="in 20 s")],
)
def test_late_burst_refuses_only_who_would_wait_too_long(
    ledger: Any, settings: Settings, confirmed: int, is_accepted: bool
) -> None:
    settings.SECKILL_BEHIND_MS = 5_000
    keys = late_entries(ledger, 2_000, age_ms=6_000)
    ledger.set(keys.pace, f"{past_ms(2_000)} {confirmed}")

    with nullcontext() if is_accepted else pytest.raises(SaleBehind, match="ms late"):
        reserve(sale_id=1, order_id=9_001, user_id=9_001)

    assert ("9001:1" in buyer_fields(1)) is is_accepted


@pytest.mark.parametrize("pace", ["none", "nothing confirmed", "junk"])
def test_late_sale_without_progress_refuses(ledger: Any, settings: Settings, pace: str) -> None:
    settings.SECKILL_BEHIND_MS = 5_000
    keys = late_entries(ledger, 1, age_ms=6_000)
    if pace == "nothing confirmed":
        ledger.set(keys.pace, f"{past_ms(2_000)} 0")
    elif pace == "junk":
        ledger.hset(keys.pace, "a", "b")

    with pytest.raises(SaleBehind):
        reserve(sale_id=1, order_id=9_001, user_id=9_001)


def test_crowd_that_would_wait_is_accepted_until_one_has_waited(
    ledger: Any, settings: Settings
) -> None:
    """The pace says little about a sale that has just begun."""
    settings.SECKILL_BEHIND_MS = 5_000
    keys = late_entries(ledger, 100, age_ms=4_000)
    ledger.set(keys.pace, f"{past_ms(2_000)} 1")

    reserve(sale_id=1, order_id=9_001, user_id=9_001)


# --- reserve: ended orders that bar another -------------------------------------------------------


def end_order(*, order_id: int = 501, user_id: int = 7) -> None:
    """Leave a buyer with an ended order, as a cancellation does."""
    entry = reserve_entry(sale_id=1, order_id=order_id, user_id=user_id)
    confirm(sale_id=1, entries=[entry])
    release(sale_id=1, releases=[Release(entry, "cancelled", had_order=True)])


def test_ended_order_bars_another_without_rebuy(dump: Dump) -> None:
    open_ledger(1, rebuy=0)
    end_order()
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501
    assert dump() == before


def test_ended_order_bars_remaining_units_of_limit() -> None:
    open_ledger(1, rebuy=0, limit=3)
    reserve(sale_id=1, order_id=500, user_id=7)
    reserve(sale_id=1, order_id=501, user_id=7)
    first = all_pending(sale_id=1)[0]

    reserve(sale_id=1, order_id=502, user_id=7)
    release(sale_id=1, releases=[Release(first, "cancelled", had_order=True)])

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=503, user_id=7)
    assert refused.value.order_id == 500
    assert held_order_ids(sale_id=1, user_id=7) == [501, 502]


def test_held_order_is_named_before_barring_order(ledger: Any) -> None:
    keys = open_ledger(1, rebuy=0)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.hset(keys.barred, "7", "400")

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501


def test_ended_order_id_is_accepted_again_where_it_bars(dump: Dump) -> None:
    open_ledger(1, rebuy=0, limit=2)
    reserve(sale_id=1, order_id=500, user_id=7)
    end_order()
    before = dump()

    for order_id in (500, 501):
        again = reserve(sale_id=1, order_id=order_id, user_id=7)
        assert (again.order_id, again.kick_due) == (order_id, False)

    assert dump() == before


@pytest.mark.parametrize("changes", CLOSED)
def test_barring_order_comes_before_sold_out_or_closed(
    ledger: Any, changes: Callable[[], dict[str, Any]]
) -> None:
    keys = open_ledger(1, rebuy=0)
    end_order()
    change_state(keys.sale_id, **{**changes(), "total": 0})

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501


def test_barred_buyer_may_order_once_rebuy_is_allowed() -> None:
    open_ledger(1, rebuy=0)
    end_order()
    with pytest.raises(AlreadyOrdered):
        reserve(sale_id=1, order_id=502, user_id=7)

    write_terms(sale_id=1, terms=replace(snapshot(sale_id=1).terms, rebuy=True))

    reserve(sale_id=1, order_id=502, user_id=7)


def test_barring_ids_above_53_bits_are_exact() -> None:
    open_ledger(1, rebuy=0)
    end_order(order_id=ABOVE_53_BITS, user_id=ABOVE_53_BITS + 2)

    reserve(sale_id=1, order_id=501, user_id=ABOVE_53_BITS + 1)
    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=ABOVE_53_BITS + 2)
    assert refused.value.order_id == ABOVE_53_BITS


# --- reserve: its cost ----------------------------------------------------------------------------

REFUSAL = ["HMGET buyers", "TIME", "HLEN buyers"]
WIN = [*REFUSAL, "ZCOUNT pending", "MGET kick", "HSET buyers", "ZADD pending"]
FIRST_WIN = [*WIN[:5], "HGET sale", *WIN[5:], "SET kick"]
"""The first order of a burst, which looks at the format of the ledger, and has a task sent."""


def commands_of_script(call: Callable[[], object]) -> list[str]:
    """Return each command that scripts sent meanwhile, with the last part of its key."""
    with redis_commands(of_scripts=True) as commands:
        call()
    words = [it.split(" ") for it in commands.ledger]
    return [" ".join([it[0], *(key.rpartition(":")[2] for key in it[1:2])]) for it in words]


def test_win_takes_seven_commands_in_redis() -> None:
    open_ledger(1)
    first = commands_of_script(lambda: reserve(sale_id=1, order_id=501, user_id=7))
    second = commands_of_script(lambda: reserve(sale_id=1, order_id=502, user_id=8))

    assert (first, second) == (FIRST_WIN, WIN)


def test_sold_out_refusal_takes_three_commands_in_redis() -> None:
    open_ledger(1, total=0)

    assert commands_of_script(lambda: refuse_as_sold_out(user_id=7)) == REFUSAL


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_first_release_lets_later_calls_see_what_ended(
    guarded: bool, drop_guard: DropGuard
) -> None:
    """A ledger in which nothing has ended is not searched for what has: `plain`."""
    if not guarded:
        drop_guard(reservations, "_RELEASE", "if state then unset_plain(state) end")
    open_ledger(1, rebuy=0)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(entry, "cancelled", had_order=True)])

    with pytest.raises(AlreadyOrdered) if guarded else nullcontext():
        reserve(sale_id=1, order_id=502, user_id=7)


@pytest.mark.parametrize("name", ["waiting", "barred"])
def test_release_beside_a_key_of_a_wrong_type_is_not_overlooked(ledger: Any, name: str) -> None:
    keys = open_ledger(1, rebuy=0)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    ledger.rpush(getattr(keys, name), "a mistyped command")
    release(sale_id=1, releases=[Release(entry, "cancelled", had_order=True)])

    with pytest.raises(NotLoaded):
        reserve(sale_id=1, order_id=502, user_id=7)


def test_commands_of_a_ledger_in_which_something_has_ended() -> None:
    open_ledger(1, plain=0)
    looks = ["TYPE ended", "TYPE tries", "TYPE barred", "TYPE waiting"]
    looks = ["HMGET buyers", *looks, "HGET ended", "TIME", "HLEN buyers"]

    first = commands_of_script(lambda: reserve(sale_id=1, order_id=501, user_id=7))

    assert first[: len(looks)] == looks


def test_buyer_who_has_ordered_is_refused_by_one_command() -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    def again() -> None:
        with pytest.raises(AlreadyOrdered):
            reserve(sale_id=1, order_id=502, user_id=7)

    assert commands_of_script(again) == ["HMGET buyers"]


# --- reserve: not loaded --------------------------------------------------------------------------


def test_lost_buyers_do_not_look_like_unsold_sale(ledger: Any) -> None:
    keys = open_ledger(1, total=1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.delete(keys.buyers)

    with pytest.raises(NotLoaded):
        reserve(sale_id=1, order_id=502, user_id=8)


def test_control_state_that_outlives_its_buyers_sells_units_again(ledger: Any) -> None:
    keys = open_ledger(1, total=1)
    reserve(sale_id=1, order_id=501, user_id=7)
    state = ledger.hget(keys.buyers, STATE)
    ledger.delete(keys.buyers)
    ledger.hset(keys.buyers, STATE, state)

    assert reserve(sale_id=1, order_id=502, user_id=8).order_id == 502


# --- confirm --------------------------------------------------------------------------------------


def test_confirmed_entry_leaves_pending_and_keeps_buyer(ledger: Any) -> None:
    keys = open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    reserve(sale_id=1, order_id=502, user_id=8)
    count_failure(sale_id=1, order_id=501)

    confirm(sale_id=1, entries=[entry])

    assert [left.order_id for left in all_pending(sale_id=1)] == [502]
    assert ledger.hget(keys.buyers, "7:1") == "501"
    assert not ledger.exists(keys.tries)


def test_confirming_keeps_the_pace_of_the_last_seconds(ledger: Any) -> None:
    keys = late_entries(ledger, 60, age_ms=0)
    entries = all_pending(sale_id=1)

    def pace() -> tuple[object, object]:
        since, count = map(int, ledger.get(keys.pace).split())
        return redis_now_ms() - since, count

    confirm(sale_id=1, entries=entries[:10])
    assert pace() == (pytest.approx(0, abs=900), 0), "nobody knows what they took"
    confirm(sale_id=1, entries=entries[10:30])
    assert pace() == (pytest.approx(0, abs=900), 20)
    assert 0 < ledger.pttl(keys.pace) <= 5_000, "without progress there is none"

    ledger.set(keys.pace, f"{past_ms(9_000)} 80")
    confirm(sale_id=1, entries=entries[30:50])
    assert pace() == (pytest.approx(4_500, abs=900), 50), "the older half is forgotten"

    ledger.set(keys.pace, f"{future_ms(9_000)} 80")
    confirm(sale_id=1, entries=entries[50:])
    assert pace() == (pytest.approx(0, abs=900), 0), "the clock of Redis went back"


def test_repeated_confirmation_changes_nothing(ledger: Any, dump: Dump) -> None:
    """It is no progress either."""
    keys = late_entries(ledger, 2, age_ms=0)
    entries = all_pending(sale_id=1)
    confirm(sale_id=1, entries=entries)
    ledger.delete(keys.pace)
    before = dump()

    confirm(sale_id=1, entries=entries)

    assert dump() == before


# --- release --------------------------------------------------------------------------------------


def test_releasing_nothing_costs_no_round_trip(ledger_trips: list[int]) -> None:
    release(sale_id=1, releases=[])

    assert ledger_trips == []


def test_release_frees_unit_and_stores_reason(ledger: Any) -> None:
    keys = open_ledger(1, total=1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    count_failure(sale_id=1, order_id=501)

    release(sale_id=1, releases=[Release(entry, "inactive_buyer")])

    assert snapshot(sale_id=1).remaining == 1
    assert all_pending(sale_id=1) == []
    assert why_ended(sale_id=1, order_id=501) == "7:inactive_buyer"
    assert not ledger.exists(keys.tries)


@pytest.mark.parametrize("had_order", [False, True])
def test_repeated_release_changes_nothing(dump: Dump, had_order: bool) -> None:
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    released = Release(entry, "cancelled", had_order=had_order)
    release(sale_id=1, releases=[released])
    before = dump()

    release(sale_id=1, releases=[released])

    assert dump() == before


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_repeated_release_keeps_newer_reservation(guarded: bool, drop_guard: DropGuard) -> None:
    if not guarded:
        guard = "if redis.call('HGET', KEYS[1], field) == order_id then"
        drop_guard(reservations, "_RELEASE", guard, "if true then")
    open_ledger(1)
    first = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(first, "cancelled")])
    reserve(sale_id=1, order_id=502, user_id=7)

    release(sale_id=1, releases=[Release(first, "cancelled")])

    assert held_order_ids(sale_id=1, user_id=7) == ([502] if guarded else [])
    assert [entry.order_id for entry in all_pending(sale_id=1)] == [502]


def test_release_replaces_unit_by_live_order() -> None:
    open_ledger(1, total=1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)

    for _ in range(2):  # a repetition changes nothing
        release(sale_id=1, releases=[Release(entry, "already_ordered", live_order_id=400)])
        assert held_order_ids(sale_id=1, user_id=7) == [400]

    assert snapshot(sale_id=1).remaining == 0
    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)
    assert refused.value.order_id == 400


def test_several_releases_use_one_round_trip(ledger_trips: list[int]) -> None:
    open_ledger(1, total=3)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2, 3)]
    release(sale_id=1, releases=[Release(entries[0], "sold_out")])
    ledger_trips.clear()

    release(sale_id=1, releases=[Release(entry, "sold_out") for entry in entries[1:]])

    assert len(ledger_trips) == 1
    assert snapshot(sale_id=1).remaining == 3


def test_releases_bar_only_buyers_who_had_orders(ledger: Any) -> None:
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


def test_release_without_ledger_only_stores_reason(ledger: Any) -> None:
    keys = LedgerKeys(1)
    entry = PendingEntry(501, 7, 1, redis_now_ms())

    release(sale_id=1, releases=[Release(entry, "sold_out", had_order=True)])

    assert not ledger.exists(keys.sale, keys.buyers, keys.pending, keys.barred, keys.waiting)
    assert why_ended(sale_id=1, order_id=501) == "7:sold_out"


def test_ended_ids_outlive_tokens_by_an_hour(ledger: Any, settings: Any) -> None:
    ends_at_ms = future_ms(600_000)
    keys = open_ledger(1, ends_at_ms=ends_at_ms)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)

    before_ms = redis_now_ms()
    release(sale_id=1, releases=[Release(entry, "sold_out")])
    elapsed_ms = redis_now_ms() - before_ms

    hour_after_tokens_ms = ends_at_ms + settings.SECKILL_TOKEN_GRACE_MS + 3_600_000
    assert abs(ledger.pexpiretime(keys.ended) - hour_after_tokens_ms) <= elapsed_ms + 1


def test_ended_ids_of_past_sale_are_kept_from_now(ledger: Any) -> None:
    keys = open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    change_state(keys.sale_id, ends_at_ms=past_ms(86_400_000))

    before_ms = redis_now_ms()
    release(sale_id=1, releases=[Release(entry, "sold_out")])

    kept_from_ms = ledger.pexpiretime(keys.ended) - ENDED_RETENTION_MS
    assert before_ms - 1 <= kept_from_ms <= redis_now_ms() + 1


def test_earlier_end_does_not_shorten_retention_of_ended_ids(ledger: Any) -> None:
    keys = open_ledger(1, ends_at_ms=future_ms(86_400_000))
    first, second = (reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2))
    release(sale_id=1, releases=[Release(first, "sold_out")])
    kept_until_ms = ledger.pexpiretime(keys.ended)
    change_state(keys.sale_id, ends_at_ms=future_ms(60_000))

    release(sale_id=1, releases=[Release(second, "sold_out")])

    assert ledger.pexpiretime(keys.ended) == kept_until_ms


# --- pending entries, kicks and sweeps ------------------------------------------------------------


def test_pending_entries_are_oldest_first_after_skipped(ledger: Any) -> None:
    keys = open_ledger(1)
    ledger.zadd(keys.pending, {"503:3:1": 300, "501:1:1": 100, "502:2:2": 200})

    assert pending_entries(sale_id=1, skip=0, count=2) == [
        PendingEntry(501, 1, 1, 100),
        PendingEntry(502, 2, 2, 200),
    ]
    assert pending_entries(sale_id=1, skip=2, count=2) == [PendingEntry(503, 3, 1, 300)]
    assert pending_entries(sale_id=1, skip=3, count=2) == []
    assert [entry.order_id for entry in all_pending(sale_id=1)] == [501, 502, 503]


def test_thousands_of_entries_are_confirmed_in_one_call(ledger: Any) -> None:
    """More than Lua's ``unpack`` takes, which is some 8,000."""
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


def test_kick_is_set_once_until_it_expires(ledger: Any, settings: Any) -> None:
    settings.SECKILL_KICK_MS = 60_000

    assert set_kick(sale_id=1)
    assert not set_kick(sale_id=1)
    assert 0 < ledger.pttl(LedgerKeys(1).kick) <= 60_000
    ledger.delete(LedgerKeys(1).kick)
    assert set_kick(sale_id=1)


def test_acknowledged_kick_stops_reservations_but_not_worker(
    ledger: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(reservations, "ACKNOWLEDGED_KICK_MS", 30_000)
    settings.SECKILL_KICK_MS = 90_000
    keys = open_ledger(1)
    acknowledge_kick(sale_id=1)
    assert not ledger.exists(keys.kick), "there was none to acknowledge"

    set_kick(sale_id=1)
    acknowledge_kick(sale_id=1)

    assert 0 < ledger.pttl(keys.kick) <= 30_000
    assert not reserve(sale_id=1, order_id=501, user_id=1).kick_due
    assert set_kick(sale_id=1)
    assert ledger.pttl(keys.kick) > 30_000


def test_only_acknowledged_kick_is_cleared(ledger: Any) -> None:
    keys = open_ledger(1)
    set_kick(sale_id=1)
    clear_kick(sale_id=1)
    assert ledger.exists(keys.kick), "its task has not started"

    acknowledge_kick(sale_id=1)
    clear_kick(sale_id=1)
    assert reserve(sale_id=1, order_id=501, user_id=1).kick_due


def test_sweep_is_due_by_oldest_entry_and_redis_clock(ledger: Any) -> None:
    now_ms = redis_now_ms()
    ledger.zadd(LedgerKeys(1).pending, {"501:1:1": now_ms - 10_000, "502:2:1": now_ms})
    ledger.zadd(LedgerKeys(2).pending, {"503:1:1": now_ms})
    ledger.set(LedgerKeys(4).pending, "of a wrong type")

    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        assert claim_due_sweeps(sale_ids=[1, 2, 3, 4]) == [1]
    assert ledger.exists(LedgerKeys(1).kick)


def test_sale_with_queued_task_is_not_swept(ledger: Any) -> None:
    ledger.zadd(LedgerKeys(1).pending, {"501:1:1": redis_now_ms() - 10_000})
    assert set_kick(sale_id=1)
    assert claim_due_sweeps(sale_ids=[1]) == []


def test_sweep_at_once_waits_for_neither_age_nor_pause(ledger: Any) -> None:
    ledger.zadd(LedgerKeys(1).pending, {"501:1:1": redis_now_ms()})
    assert claim_due_sweeps(sale_ids=[1]) == []
    for _ in range(2):
        assert claim_due_sweeps(sale_ids=[1], at_once=True) == [1]
        assert claim_due_sweeps(sale_ids=[1], at_once=True) == [], "a task is queued"
        ledger.delete(LedgerKeys(1).kick)
    assert claim_due_sweeps(sale_ids=[1]) == []


def test_sweep_pause_doubles_up_to_maximum_and_resets(ledger: Any, settings: Any) -> None:
    settings.SECKILL_SWEEP_AGE_MS, settings.SECKILL_SWEEP_PAUSE_MS = 2_000, 5_000
    keys = LedgerKeys(1)
    ledger.zadd(keys.pending, {"501:1:1": redis_now_ms() - 90_000})

    def is_due_after_pause() -> bool:
        ledger.delete(keys.kick)
        if ledger.exists(keys.swept):
            assert claim_due_sweeps(sale_ids=[1]) == []
            ledger.hset(keys.swept, "due", redis_now_ms())
        return claim_due_sweeps(sale_ids=[1]) == [1]

    pauses = []
    for _ in range(4):
        assert is_due_after_pause()
        pauses.append(int(ledger.hget(keys.swept, "pause")))
    assert pauses == [2_000, 4_000, 5_000, 5_000]
    assert ledger.pttl(keys.swept) > 5_000

    ledger.delete(keys.kick)
    ledger.zrem(keys.pending, "501:1:1")
    ledger.zadd(keys.pending, {"502:2:1": redis_now_ms() - 60_000})
    assert claim_due_sweeps(sale_ids=[1]) == [1]
    assert ledger.hget(keys.swept, "pause") == "2000"


# --- retake ---------------------------------------------------------------------------------------


def set_aside_entry(*, order_id: int = 501, user_id: int = 7) -> PendingEntry:
    """Reserve a unit and give it back after a failed attempt, as fulfilment does."""
    entry = reserve_entry(sale_id=1, order_id=order_id, user_id=user_id)
    release(sale_id=1, releases=[Release(entry, "failed")])
    count_failure(sale_id=1, order_id=order_id)
    return entry


def test_retake_takes_unit_and_clears_end_and_tries(ledger: Any) -> None:
    keys = open_ledger(1)
    entry, _ = set_aside_entry(), set_aside_entry(order_id=502, user_id=8)

    retake(sale_id=1, holdings=[entry])

    assert buyer_fields(1) == {"7:1": "501"}
    assert not ledger.exists(keys.pending)
    assert ledger.hgetall(keys.ended) == {"502": "8:failed"}
    assert ledger.hkeys(keys.tries) == ["502"]
    assert snapshot(sale_id=1).remaining == 4


@pytest.mark.parametrize("total", [1, 5])
def test_repeated_retake_succeeds_and_writes_nothing(dump: Dump, total: int) -> None:
    open_ledger(1, total=total)
    entry = set_aside_entry()
    retake(sale_id=1, holdings=[entry])
    before = dump()

    retake(sale_id=1, holdings=[entry])

    assert dump() == before


def test_retake_keeps_ids_above_53_bits_exact(ledger: Any) -> None:
    open_ledger(1)

    retake(sale_id=1, holdings=[Holding(ABOVE_53_BITS, ABOVE_53_BITS + 2, 1)])

    held = buyer_fields(1)
    assert held[f"{ABOVE_53_BITS + 2}:1"] == str(ABOVE_53_BITS)


def test_retake_of_taken_unit_names_order_and_writes_nothing(dump: Dump) -> None:
    open_ledger(1)
    entry = set_aside_entry()
    reserve(sale_id=1, order_id=601, user_id=7)
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        retake(sale_id=1, holdings=[entry])

    assert refused.value.order_id == 601
    assert dump() == before


def test_retake_takes_only_its_own_unit(ledger: Any) -> None:
    open_ledger(1, limit=2)
    set_aside_entry()
    reserve(sale_id=1, order_id=601, user_id=7)

    retake(sale_id=1, holdings=[Holding(501, 7, 2)])

    assert buyer_fields(1) == {"7:1": "601", "7:2": "501"}


def test_retake_of_sold_unit_is_refused_and_writes_nothing(dump: Dump) -> None:
    open_ledger(1, total=1)
    entry = set_aside_entry()
    reserve(sale_id=1, order_id=601, user_id=8)
    before = dump()

    with pytest.raises(SoldOut):
        retake(sale_id=1, holdings=[entry])

    assert dump() == before


def test_retake_of_pending_order_is_refused_and_writes_nothing(dump: Dump) -> None:
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    before = dump()

    with pytest.raises(StillPending):
        retake(sale_id=1, holdings=[entry])

    assert dump() == before


def test_control_without_pending_check_late_release_undoes_retake(
    ledger: Any, drop_guard: DropGuard
) -> None:
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    guard = "redis.call('ZSCORE', KEYS[2], order_id .. ':' .. field)"
    drop_guard(reservations, "_RETAKE", guard, "false")

    retake(sale_id=1, holdings=[entry])
    release(sale_id=1, releases=[Release(entry, "failed")])

    assert buyer_fields(1) == {}


@pytest.mark.parametrize("changes", [{"paused": 1}, {"ends_at_ms": 1}])
def test_retake_ignores_window_and_pause(ledger: Any, changes: dict[str, Any]) -> None:
    keys = open_ledger(1, **changes)

    retake(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert ledger.hget(keys.buyers, "7:1") == "501"


# --- The ledger of another sale -------------------------------------------------------------------


def test_buyer_of_another_sale_with_this_id_is_told(ledger: Any, dump: Dump) -> None:
    open_ledger(1, identity=8)
    before = dump()

    with pytest.raises(OtherSale):
        reserve(sale_id=1, order_id=501, user_id=7, identity=9)

    assert dump() == before
    assert reserve(sale_id=1, order_id=501, user_id=7, identity=8).order_id == 501


# --- A waiting room -------------------------------------------------------------------------------

LATE_MS = OPENED_MS + 1_000
ADMITTED = None
"""The token says that the room has let its buyer in: no time is compared."""


@pytest.mark.parametrize("minted_ms", [OPENED_MS, LATE_MS])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_new_order_without_admission_is_refused_without_writes(
    minted_ms: int,
    guarded: bool,
    dump: Dump,
    drop_guard: DropGuard,
) -> None:
    if not guarded:
        guard = "if mode_terms ~= '' and ARGV[6]"
        drop_guard(reservations, "_RESERVE", guard, "if false and ARGV[6]")
    open_room(1)
    before = dump()

    with pytest.raises(NotAdmitted) if guarded else nullcontext():
        reserve(sale_id=1, order_id=501, user_id=7, minted_ms=minted_ms)

    assert (dump() == before) is guarded


@pytest.mark.parametrize("minted_ms", [ADMITTED, 0, OPENED_MS - 1])
def test_admission_and_earlier_tokens_are_accepted(minted_ms: int | None) -> None:
    open_room(1)

    reserve(sale_id=1, order_id=501, user_id=7, minted_ms=minted_ms)

    assert buyer_fields(1) == {"7:1": "501"}


@pytest.mark.parametrize("minted_ms", [ADMITTED, LATE_MS])
def test_one_turn_in_the_room_takes_a_quantity(minted_ms: int | None) -> None:
    open_room(1, state={"limit": 4})

    with nullcontext() if minted_ms is ADMITTED else pytest.raises(NotAdmitted):
        reserve(sale_id=1, order_id=BLOCK, user_id=7, minted_ms=minted_ms, quantity=3)

    assert len(buyer_fields(1)) == (3 if minted_ms is ADMITTED else 0)


def test_sale_without_a_room_admits_every_token() -> None:
    open_ledger(1)

    assert reserve(sale_id=1, order_id=501, user_id=7, minted_ms=LATE_MS).order_id == 501


@pytest.mark.parametrize("limit", [1, 2])
def test_known_order_id_needs_no_admission(limit: int, dump: Dump) -> None:
    open_room(1, state={"limit": limit})
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    again = reserve(sale_id=1, order_id=501, user_id=7, minted_ms=LATE_MS)

    assert (again.order_id, dump()) == (501, before)


def test_ended_order_id_needs_no_admission() -> None:
    open_room(1)
    entry = reserve_entry(sale_id=1, order_id=501, user_id=7)
    release(sale_id=1, releases=[Release(entry, "sold_out")])

    assert reserve(sale_id=1, order_id=501, user_id=7, minted_ms=LATE_MS).order_id == 501


def test_second_unit_without_admission_is_refused() -> None:
    open_room(1, state={"limit": 2})
    reserve(sale_id=1, order_id=501, user_id=7)

    with pytest.raises(NotAdmitted):
        reserve(sale_id=1, order_id=502, user_id=7, minted_ms=LATE_MS)


@pytest.mark.parametrize(("changes", "refusal"), [*REFUSALS, (lambda: {"identity": 8}, OtherSale)])
def test_what_nobody_can_buy_comes_before_admission(
    changes: Callable[[], dict[str, Any]], refusal: type[Exception]
) -> None:
    open_room(1, state={"identity": 9, **changes()})

    with pytest.raises(refusal):
        reserve(sale_id=1, order_id=501, user_id=7, identity=9, minted_ms=LATE_MS)


def test_already_ordered_comes_before_admission() -> None:
    open_room(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    with pytest.raises(AlreadyOrdered):
        reserve(sale_id=1, order_id=502, user_id=7, minted_ms=LATE_MS)


@pytest.mark.parametrize("minted_ms", [ADMITTED, LATE_MS])
def test_room_costs_an_order_no_command(minted_ms: int | None) -> None:
    open_room(1)

    def order() -> None:
        with suppress(NotAdmitted):
            reserve(sale_id=1, order_id=501, user_id=7, minted_ms=minted_ms)

    assert commands_of_script(order) == (FIRST_WIN if minted_ms is None else WIN[:4])


# --- reserve: the price ---------------------------------------------------------------------------


def order_at(price_cents: int | None, *, order_id: int = 501) -> Reservation:
    return reserve(sale_id=1, order_id=order_id, user_id=order_id, price_cents=price_cents)


def test_order_at_another_price_is_refused_and_leaves_no_trace(ledger: Any, dump: Dump) -> None:
    ledger.set(open_ledger(1).price, "9500")
    before = dump()

    with pytest.raises(PriceChanged) as refused:
        order_at(8_000)

    assert refused.value.args == (9_500,)
    assert dump() == before


@pytest.mark.parametrize("agreed", [9_500, None], ids=["the_price", "a_token_of_an_older_release"])
def test_order_at_the_price_or_at_any_is_accepted(ledger: Any, agreed: int | None) -> None:
    ledger.set(open_ledger(1).price, "9500")

    assert order_at(agreed).order_id == 501


def test_free_unit_that_has_a_price_now_is_refused(ledger: Any) -> None:
    ledger.set(open_ledger(1).price, "9500")

    with pytest.raises(PriceChanged):
        order_at(0)


def test_known_order_is_accepted_again_at_any_price(ledger: Any) -> None:
    keys = open_ledger(1)
    ledger.set(keys.price, "8000")
    order_at(8_000)
    ledger.set(keys.price, "9500")

    assert order_at(8_000).order_id == 501


@pytest.mark.parametrize("write", [
    lambda client, key: None,
    lambda client, key: client.set(key, "a mistyped command"),
    lambda client, key: client.rpush(key, "a mistyped command"),
], ids=["missing", "no_number", "wrong_type"])  # fmt: skip
def test_unknown_price_stops_no_order(ledger: Any, write: Callable[[Any, str], object]) -> None:
    write(ledger, open_ledger(1).price)

    assert order_at(8_000).order_id == 501


def test_sold_out_goes_before_another_price(ledger: Any) -> None:
    ledger.set(open_ledger(1, total=0).price, "9500")

    with pytest.raises(SoldOut):
        order_at(8_000)


def test_price_is_no_word_of_the_state(ledger: Any) -> None:
    """The release before takes a state with a further word for a ledger that is not loaded."""
    keys = open_ledger(1)
    before = ledger.hget(keys.buyers, STATE)
    write_terms(sale_id=1, terms=replace(snapshot(sale_id=1).terms, price_cents=9_500))

    assert ledger.get(keys.price) == "9500"
    assert ledger.hget(keys.buyers, STATE) == before
    assert ledger.hlen(keys.buyers) == 1
