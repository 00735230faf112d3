"""The waiting list: joining, leaving, and which buyer gets a unit that comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from tests.fixtures.vouchers import DropGuard, Dump
from tests.support.inspection import buyer_fields
from tests.support.sales import (
    all_pending,
    change_state,
    future_ms,
    lose_state,
    open_ledger,
    past_ms,
    redis_now_ms,
    reserve,
    reserve_entry,
    why_ended,
)
from vouchers.inventory import reservations, waiting_list
from vouchers.inventory.holdings import Holding, held_order_ids
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    NotStarted,
    PendingEntry,
    Release,
    SaleEnded,
    SoldOut,
    release,
)
from vouchers.inventory.sale_state import BelowTaken, snapshot, snapshots, write_terms
from vouchers.inventory.waiting_list import (
    NoLongerWaiting,
    UnitAvailable,
    join_waiting,
    leave_waiting,
    waiting_order_ids,
    waiting_position,
)

ABOVE_53_BITS = 9_007_199_254_740_993


@pytest.fixture(autouse=True)
def check_conservation(ledger: Any) -> Iterator[None]:
    """Check after each test: a unit is on sale or with one order, which does not wait any more."""
    yield
    found = snapshots(sale_ids=[1])[1]
    if found is None:
        return
    keys = LedgerKeys(1)
    buyers = buyer_fields(1)
    assert found.remaining + len(buyers) == found.terms.total
    assert len(set(buyers.values())) == len(buyers), "an order has one unit"
    for member in ledger.zrange(keys.pending, 0, -1):
        order_id, _, field = member.partition(":")
        assert buyers[field] == order_id
    assert not {str(order_id) for order_id in waiting_order_ids(sale_id=1)} & set(buyers.values())


def sell_out(*, total: int = 1, **changes: Any) -> list[PendingEntry]:
    """Open a sale and sell all of it, to the users 1 to ``total``; return their entries."""
    open_ledger(1, total=total, **changes)
    return [reserve_entry(sale_id=1, order_id=100 + n, user_id=n) for n in range(1, total + 1)]


def join(order_id: int, user_id: int, *, at_ms: int | None = None) -> int:
    """Join the waiting list of sale 1, by default at a time equal to the order id."""
    joined_at_ms = order_id if at_ms is None else at_ms
    return join_waiting(
        sale_id=1, order_id=order_id, user_id=user_id, joined_at_ms=joined_at_ms
    ).place


def read_waiting(ledger: Any) -> list[str]:
    """Return ``<order id>:<user>`` of all waiting buyers in their order."""
    return list(ledger.zrange(LedgerKeys(1).waiting, 0, -1))


def give_back(*entries: Holding, **fields: Any) -> None:
    release(sale_id=1, releases=[Release(entry, "cancelled", **fields) for entry in entries])


def change_terms(**changes: Any) -> None:
    """Change the ledger's terms, as an edit of the row does."""
    write_terms(sale_id=1, terms=replace(snapshot(sale_id=1).terms, **changes))


def add_units_without_giving(count: int = 1) -> None:
    """Free units without giving them to the waiting list."""
    change_state(1, total=snapshot(sale_id=1).terms.total + count)


# --- joining --------------------------------------------------------------------------------------


def test_joining_returns_position_and_changes_nothing_else(ledger: Any) -> None:
    sell_out()
    keys = LedgerKeys(1)
    before = buyer_fields(1), all_pending(sale_id=1)

    assert [join(501, 7, at_ms=1_000), join(502, 8, at_ms=2_000)] == [1, 2]

    assert ledger.zrange(keys.waiting, 0, -1, withscores=True) == [
        ("501:7", 1_000),
        ("502:8", 2_000),
    ]
    assert (buyer_fields(1), all_pending(sale_id=1)) == before
    assert snapshot(sale_id=1).waiting == 2


def test_position_follows_time_of_joining() -> None:
    """Or buyers restored after a loss of Redis would come after newer ones."""
    sell_out()
    join(501, 7, at_ms=2_000)

    assert join(502, 8, at_ms=1_000) == 1

    assert waiting_position(sale_id=1, order_id=501, user_id=7) == (2, 1)


def test_joining_again_keeps_position_and_writes_nothing(dump: Dump) -> None:
    sell_out()
    join(501, 7, at_ms=1_000)
    join(502, 8, at_ms=2_000)
    before = dump()

    assert join(501, 7, at_ms=3_000) == 1

    assert dump() == before


def test_ids_above_53_bits_are_exact(ledger: Any) -> None:
    [entry] = sell_out()
    order_id, user_id = ABOVE_53_BITS, ABOVE_53_BITS + 2

    join(order_id, user_id, at_ms=1)
    join(order_id + 1, user_id + 1, at_ms=2)

    assert read_waiting(ledger) == [f"{order_id}:{user_id}", f"{order_id + 1}:{user_id + 1}"]
    assert waiting_order_ids(sale_id=1) == {order_id, order_id + 1}
    assert waiting_position(sale_id=1, order_id=order_id, user_id=user_id) == (1, 1)
    give_back(entry)
    assert buyer_fields(1) == {f"{user_id}:1": str(order_id)}
    [given] = all_pending(sale_id=1)
    assert (given.order_id, given.user_id) == (order_id, user_id)
    with pytest.raises(AlreadyOrdered) as refused:
        join(order_id + 4, user_id)
    assert refused.value.order_id == order_id


def test_buyer_may_wait_in_paused_sale_with_free_units(ledger: Any) -> None:
    open_ledger(1, paused=1)

    assert join(501, 7) == 1

    assert read_waiting(ledger) == ["501:7"]


def test_buyer_who_joins_comes_behind_others_despite_free_unit(ledger: Any) -> None:
    sell_out()
    join(501, 7)
    add_units_without_giving()

    assert join(502, 8) == 1

    assert held_order_ids(sale_id=1, user_id=7) == [501]


def test_buyer_below_limit_may_wait_for_another_unit(ledger: Any) -> None:
    [entry] = sell_out(limit=2)

    assert join(501, entry.user_id) == 1

    assert read_waiting(ledger) == [f"501:{entry.user_id}"]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (lambda: {}, UnitAvailable),
        (lambda: {"begins_at_ms": future_ms()}, NotStarted),
        (lambda: {"ends_at_ms": past_ms()}, SaleEnded),
        (lambda: {"total": 0, "begins_at_ms": future_ms()}, NotStarted),
        (lambda: {"total": 0, "ends_at_ms": past_ms()}, SaleEnded),
        (lambda: {"paused": 1, "ends_at_ms": past_ms()}, SaleEnded),
    ],
)
def test_refusal_is_named_and_writes_nothing(
    dump: Dump, changes: Callable[[], dict[str, Any]], refusal: type[Exception]
) -> None:
    open_ledger(1, **changes())
    before = dump()

    with pytest.raises(refusal):
        join(501, 7)

    assert dump() == before


def test_buyer_at_limit_is_refused_with_order(dump: Dump) -> None:
    [entry] = sell_out()
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        join(501, entry.user_id)

    assert refused.value.order_id == entry.order_id
    assert dump() == before


def test_barred_buyer_is_refused_with_barring_order(dump: Dump) -> None:
    entry, _ = sell_out(total=2, rebuy=0)
    give_back(entry, had_order=True)
    reserve(sale_id=1, order_id=401, user_id=4)
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        join(501, entry.user_id)

    assert refused.value.order_id == entry.order_id
    assert dump() == before


def test_buyer_with_ended_order_may_wait_with_rebuy() -> None:
    entry, _ = sell_out(total=2, rebuy=1)
    give_back(entry, had_order=True)
    reserve(sale_id=1, order_id=401, user_id=4)

    assert join(501, entry.user_id) == 1


def test_buyer_no_longer_waits_once_unit_is_given_or_ended(dump: Dump) -> None:
    [entry] = sell_out()
    join(501, 7)
    give_back(entry)
    before = dump()

    with pytest.raises(NoLongerWaiting):
        join(501, 7)

    assert dump() == before
    [given] = all_pending(sale_id=1)
    release(sale_id=1, releases=[Release(given, "inactive_buyer")])
    before = dump()

    with pytest.raises(NoLongerWaiting):
        join(501, 7)

    assert dump() == before


def test_ended_order_id_of_another_buyer_is_ignored() -> None:
    entry, _ = sell_out(total=2)
    give_back(entry)
    reserve(sale_id=1, order_id=401, user_id=4)

    assert join(entry.order_id, 77) == 1


@pytest.mark.parametrize("change", [{"paused": 1}, {"ends_at_ms": 1}, {"begins_at_ms": 2**50}])
def test_given_unit_comes_before_closed_sale(ledger: Any, change: dict[str, Any]) -> None:
    [entry] = sell_out()
    join(501, 7)
    give_back(entry)
    change_state(1, **change)

    with pytest.raises(NoLongerWaiting):
        join(501, 7)
    with pytest.raises(AlreadyOrdered) as refused:
        join(502, 7)
    assert refused.value.order_id == 501


# --- leaving and reading --------------------------------------------------------------------------


def test_leaving_moves_others_up() -> None:
    sell_out()
    join(501, 7)
    join(502, 8)

    assert leave_waiting(sale_id=1, order_id=501, user_id=7)
    assert not leave_waiting(sale_id=1, order_id=501, user_id=7)

    assert waiting_position(sale_id=1, order_id=501, user_id=7) is None
    assert waiting_position(sale_id=1, order_id=502, user_id=8) == (1, 1)


def test_buyer_who_left_may_join_again_at_the_end() -> None:
    sell_out()
    join(501, 7, at_ms=1_000)
    join(502, 8, at_ms=2_000)
    leave_waiting(sale_id=1, order_id=501, user_id=7)

    assert join(501, 7, at_ms=3_000) == 2


@pytest.mark.parametrize(("order_id", "user_id"), [(501, 8), (502, 7), (50, 17)])
def test_only_exact_entry_leaves_waiting_list(ledger: Any, order_id: int, user_id: int) -> None:
    sell_out()
    join(501, 7)

    assert not leave_waiting(sale_id=1, order_id=order_id, user_id=user_id)

    assert waiting_position(sale_id=1, order_id=order_id, user_id=user_id) is None
    assert read_waiting(ledger) == ["501:7"]


def test_long_waiting_list_is_read_whole(ledger: Any) -> None:
    open_ledger(1, total=0)
    ids = range(1_000, 7_000)
    ledger.zadd(LedgerKeys(1).waiting, {f"{order_id}:{order_id}": order_id for order_id in ids})

    assert waiting_order_ids(sale_id=1) == set(ids)
    assert waiting_order_ids(sale_id=2) == set()


# --- giving: a unit comes back --------------------------------------------------------------------


def test_freed_unit_is_reserved_for_first_waiting_buyer(ledger: Any) -> None:
    [entry] = sell_out()
    join(501, 7)
    join(502, 8)
    before_ms = redis_now_ms()

    give_back(entry)

    assert buyer_fields(1) == {"7:1": "501"}
    [given] = all_pending(sale_id=1)
    assert given.member == "501:7:1"
    assert before_ms <= given.accepted_at_ms <= redis_now_ms()
    assert read_waiting(ledger) == ["502:8"]
    assert snapshot(sale_id=1).remaining == 0
    assert why_ended(sale_id=1, order_id=entry.order_id) == "1:cancelled"


def test_first_to_join_is_served_first(ledger: Any) -> None:
    entries = sell_out(total=3)
    for order_id, user_id, at_ms in ((501, 7, 3), (502, 8, 1), (503, 9, 2)):
        join(order_id, user_id, at_ms=at_ms)

    waiting = [read_waiting(ledger)]
    for entry in entries:
        give_back(entry)
        waiting.append(read_waiting(ledger))

    assert waiting == [["502:8", "503:9", "501:7"], ["503:9", "501:7"], ["501:7"], []]
    assert {entry.order_id for entry in all_pending(sale_id=1)} == {501, 502, 503}


def test_freed_unit_without_waiting_buyer_is_on_sale(ledger: Any) -> None:
    entries = sell_out(total=3)
    join(501, 7)

    give_back(*entries)

    assert snapshot(sale_id=1).remaining == 2
    assert read_waiting(ledger) == []
    reserve(sale_id=1, order_id=601, user_id=20)


def test_buyer_waiting_twice_gets_two_units_within_limit(ledger: Any) -> None:
    entries = sell_out(total=2, limit=2)
    join(501, 7)
    join(502, 7)

    give_back(*entries)

    assert buyer_fields(1) == {"7:1": "501", "7:2": "502"}


def test_repeated_release_gives_no_more_units(dump: Dump) -> None:
    entries = sell_out(total=2)
    join(501, 7)
    join(502, 8)
    give_back(entries[0])
    before = dump()

    give_back(entries[0])

    assert dump() == before


def test_release_to_live_order_gives_nothing(ledger: Any) -> None:
    [entry] = sell_out()
    join(501, 7)

    give_back(entry, live_order_id=99)

    assert read_waiting(ledger) == ["501:7"]
    assert held_order_ids(sale_id=1, user_id=7) == []


def test_unit_above_total_is_given_to_nobody(ledger: Any) -> None:
    entries = sell_out(total=2)
    join(501, 7)
    change_terms(total=1)

    give_back(entries[0])

    assert read_waiting(ledger) == ["501:7"]
    assert snapshot(sale_id=1).taken == 1


def test_release_without_ledger_gives_nothing(ledger: Any) -> None:
    [entry] = sell_out()
    join(501, 7)
    lose_state(1)

    give_back(entry)

    assert read_waiting(ledger) == ["501:7"]
    assert "7:1" not in buyer_fields(1)


CLOSED = [
    {"paused": 1},
    {"begins_at_ms": 2**50, "ends_at_ms": 2**51},
    {"ends_at_ms": 1},
]


@pytest.mark.parametrize("closed", CLOSED)
def test_closed_sale_keeps_freed_unit_and_waiting_list(ledger: Any, closed: dict[str, Any]) -> None:
    [entry] = sell_out()
    join(501, 7)
    change_state(1, **closed)

    give_back(entry)

    assert read_waiting(ledger) == ["501:7"]
    assert all_pending(sale_id=1) == []
    assert snapshot(sale_id=1).remaining == 1


# --- giving: the terms change ---------------------------------------------------------------------


def test_added_units_go_to_waiting_buyers(ledger: Any) -> None:
    sell_out()
    for n in (1, 2, 3):
        join(500 + n, 10 + n)

    change_terms(total=3)

    assert [entry.order_id for entry in all_pending(sale_id=1)] == [101, 501, 502]
    assert read_waiting(ledger) == ["503:13"]


@pytest.mark.parametrize("closed", [{"paused": True}, {"begins_at_ms": 2**50}, {"ends_at_ms": 1}])
def test_units_added_while_closed_are_given_on_reopening(
    ledger: Any, closed: dict[str, Any]
) -> None:
    sell_out()
    join(501, 7)
    open_again = {name: getattr(snapshot(sale_id=1).terms, name) for name in closed}

    change_terms(total=2, **closed)
    assert read_waiting(ledger) == ["501:7"]
    assert snapshot(sale_id=1).remaining == 1

    change_terms(**open_again)
    assert read_waiting(ledger) == []
    assert held_order_ids(sale_id=1, user_id=7) == [501]


def test_refused_total_gives_nothing(ledger: Any, dump: Dump) -> None:
    sell_out(total=2)
    join(501, 7)
    add_units_without_giving()
    before = dump()

    lower = replace(snapshot(sale_id=1).terms, total=1)
    with pytest.raises(BelowTaken):
        write_terms(sale_id=1, terms=lower, refuse_below_taken=True)

    assert dump() == before


def test_terms_that_free_nothing_give_nothing(ledger: Any) -> None:
    sell_out(total=2)
    join(501, 7)

    change_terms(limit=2)

    assert read_waiting(ledger) == ["501:7"]


# --- giving: a buyer who may have no unit drops out -----------------------------------------------


def test_buyer_at_limit_is_dropped_for_the_next(ledger: Any) -> None:
    entries = sell_out(total=2)
    join(501, 7)
    join(502, 7)
    join(503, 8)
    give_back(entries[0])

    give_back(entries[1])

    assert buyer_fields(1) == {"7:1": "501", "8:1": "503"}
    assert read_waiting(ledger) == []


def test_barred_buyer_is_dropped_for_the_next(ledger: Any) -> None:
    entries = sell_out(total=2, limit=2, rebuy=0)
    join(501, entries[0].user_id)
    join(502, 8)

    give_back(entries[0], had_order=True)

    assert held_order_ids(sale_id=1, user_id=entries[0].user_id) == []
    assert held_order_ids(sale_id=1, user_id=8) == [502]
    assert read_waiting(ledger) == []


def test_buyer_with_ended_order_gets_unit_with_rebuy(ledger: Any) -> None:
    entries = sell_out(total=2, limit=2, rebuy=1)
    join(501, entries[0].user_id)
    join(502, 8)

    give_back(entries[0], had_order=True)

    assert held_order_ids(sale_id=1, user_id=entries[0].user_id) == [501]
    assert read_waiting(ledger) == ["502:8"]


def test_unit_is_on_sale_after_all_drop_out(ledger: Any) -> None:
    entries = sell_out(total=2, limit=2, rebuy=0)
    join(501, entries[0].user_id)

    give_back(entries[0], had_order=True)

    assert read_waiting(ledger) == []
    assert snapshot(sale_id=1).remaining == 1
    reserve(sale_id=1, order_id=601, user_id=20)


def test_malformed_entries_are_dropped_for_the_next(ledger: Any) -> None:
    [entry] = sell_out()
    ledger.zadd(LedgerKeys(1).waiting, {"junk": 1, "12:x": 2, "": 3, "1:2:3": 4})
    ledger.zadd(LedgerKeys(1).waiting, {"501:7": 5})

    give_back(entry)

    assert read_waiting(ledger) == []
    assert held_order_ids(sale_id=1, user_id=7) == [501]


# --- giving: another buyer reserves ---------------------------------------------------------------


LOOK = "if plain == '0' and redis.call('ZCARD', KEYS[6]) > 0 then"
NEWCOMER_CONTROLS = [
    (reservations, "_RESERVE", LOOK, "if false then"),
    (waiting_list, "_JOIN", "  unset_plain(sale)\n", ""),
]
"""Without the look at the list, and where joining does not say in the state that others look."""


@pytest.mark.parametrize("without", NEWCOMER_CONTROLS, ids=lambda it: it[1])
def test_control_newcomer_takes_the_unit(
    without: tuple[ModuleType, str, str, str], drop_guard: DropGuard
) -> None:
    drop_guard(*without)
    sell_out()
    join(501, 7)
    add_units_without_giving()

    assert reserve(sale_id=1, order_id=601, user_id=20).order_id == 601


def test_newcomer_does_not_get_unit_of_waiting_buyer(ledger: Any) -> None:
    sell_out()
    join(501, 7)
    add_units_without_giving()

    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=601, user_id=20)

    assert held_order_ids(sale_id=1, user_id=7) == [501]
    assert [entry.order_id for entry in all_pending(sale_id=1)] == [101, 501]
    assert read_waiting(ledger) == []


def test_newcomer_waits_when_one_call_gives_too_few(ledger: Any, drop_guard: DropGuard) -> None:
    """One call gives at most 1,000 units; here 2, with 3 buyers waiting."""
    sell_out()
    for order_id in (501, 502, 503):
        join(order_id, order_id)
    change_state(1, total=4)
    most = "local MAX_UNITS_GIVEN ="
    drop_guard(reservations, "_RESERVE", f"{most} 1000", f"{most} 2")

    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=601, user_id=20)

    assert read_waiting(ledger) == ["503:503"]
    assert snapshot(sale_id=1).remaining == 1


def test_lost_entry_is_restored_despite_free_unit(ledger: Any) -> None:
    sell_out()
    join(501, 7)
    add_units_without_giving()
    ledger.delete(LedgerKeys(1).waiting)

    place = join_waiting(sale_id=1, order_id=501, user_id=7, joined_at_ms=1, restoring=True)

    assert place == (1, 1)
    assert read_waiting(ledger) == ["501:7"]


def test_newcomer_gets_unit_left_after_waiting_buyers(ledger: Any) -> None:
    sell_out()
    join(501, 7)
    add_units_without_giving(2)

    assert reserve(sale_id=1, order_id=601, user_id=20).kick_due is False  # the first buyer set it

    held = buyer_fields(1)
    assert held == {"1:1": "101", "7:1": "501", "20:1": "601"}


def test_newcomer_gets_unit_of_dropped_buyer(ledger: Any) -> None:
    [entry] = sell_out(limit=2, rebuy=0)
    join(501, entry.user_id)
    ledger.hset(LedgerKeys(1).barred, entry.user_id, 99)
    add_units_without_giving()

    assert reserve(sale_id=1, order_id=601, user_id=20).order_id == 601

    assert read_waiting(ledger) == []


def test_waiting_buyer_with_other_id_is_told_of_given_unit(ledger: Any) -> None:
    sell_out()
    join(501, 7)
    add_units_without_giving(2)

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501
    assert held_order_ids(sale_id=1, user_id=7) == [501]
    assert snapshot(sale_id=1).remaining == 1


@pytest.mark.parametrize("limit", [1, 2])
def test_waiting_buyer_with_same_id_gets_unit(ledger: Any, limit: int) -> None:
    sell_out(limit=limit)
    join(501, 7)
    add_units_without_giving(2)

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501

    assert held_order_ids(sale_id=1, user_id=7) == [501]
    assert read_waiting(ledger) == []
    assert snapshot(sale_id=1).remaining == 1


def test_buyer_far_back_in_list_leaves_it_by_ordering(ledger: Any) -> None:
    """One call gives at most 1,000 units; this buyer waits behind as many."""
    sell_out()
    others = range(1_001, 2_001)
    ledger.zadd(LedgerKeys(1).waiting, {f"{order_id}:{order_id}": 1 for order_id in others})
    join(5_001, 7)
    add_units_without_giving(1_500)

    assert reserve(sale_id=1, order_id=5_001, user_id=7).order_id == 5_001

    assert held_order_ids(sale_id=1, user_id=7) == [5_001]
    assert read_waiting(ledger) == []


@pytest.mark.parametrize("closed", CLOSED)
def test_newcomer_to_closed_sale_writes_nothing(
    ledger: Any, dump: Dump, closed: dict[str, Any]
) -> None:
    sell_out()
    join(501, 7)
    add_units_without_giving()
    change_state(1, **closed)
    before = dump()

    with pytest.raises(reservations.ReservationRefused):
        reserve(sale_id=1, order_id=601, user_id=20)

    assert dump() == before


# --- after a unit was given -----------------------------------------------------------------------


def test_waiting_lists_of_sales_are_separate() -> None:
    [entry] = sell_out()
    open_ledger(11, total=0)
    join(501, 7)
    join_waiting(sale_id=11, order_id=502, user_id=7, joined_at_ms=1)

    give_back(entry)

    assert waiting_position(sale_id=1, order_id=501, user_id=7) is None
    assert waiting_position(sale_id=11, order_id=502, user_id=7) == (1, 1)
