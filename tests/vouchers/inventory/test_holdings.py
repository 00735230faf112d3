"""What buyers hold in the ledger, on a real Redis."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.vouchers import Dump
from tests.support.sales import all_pending, open_ledger, redis_now_ms, reserve, reserve_entry
from vouchers.inventory.holdings import (
    JUNK_KEPT_MS,
    HeldUnit,
    Holding,
    add_buyers,
    check_holdings,
    held_order_ids,
    make_pending,
    read_buyer_holdings,
    read_buyers,
    read_pending,
)
from vouchers.inventory.keys import STATE, LedgerKeys, LedgerUnavailable
from vouchers.inventory.reservations import confirm

ABOVE_53_BITS = 9_007_199_254_740_993


def test_buyers_and_pending_are_read_without_the_state() -> None:
    open_ledger(1, limit=2)
    done = reserve_entry(sale_id=1, order_id=ABOVE_53_BITS, user_id=7)
    reserve(sale_id=1, order_id=502, user_id=7)
    confirm(sale_id=1, entries=[done])

    assert read_buyers(sale_id=1) == {Holding(ABOVE_53_BITS, 7, 1), Holding(502, 7, 2)}
    assert read_pending(sale_id=1) == {Holding(502, 7, 2)}


def test_unloaded_sale_has_no_buyers_or_pending_entries() -> None:
    assert read_buyers(sale_id=1) == set()
    assert read_pending(sale_id=1) == set()


def test_buyers_beyond_one_scan_step_are_all_read(ledger: Any) -> None:
    keys = LedgerKeys(1)
    everyone = {Holding(10_000 + user_id, user_id, 1) for user_id in range(1, 5_001)}
    ledger.hset(keys.buyers, mapping={STATE: "", **{h.field: h.order_id for h in everyone}})
    ledger.zadd(keys.pending, {h.member: h.user_id for h in everyone})

    assert read_buyers(sale_id=1) == everyone
    assert read_pending(sale_id=1) == everyone


def test_check_holdings_answers_in_order_in_one_round_trip(ledger_trips: list[int]) -> None:
    open_ledger(1)
    done = reserve_entry(sale_id=1, order_id=501, user_id=1)
    reserve(sale_id=1, order_id=502, user_id=2)
    confirm(sale_id=1, entries=[done])
    ledger_trips.clear()

    answers = check_holdings(
        sale_id=1, holdings=[Holding(502, 2, 1), Holding(501, 1, 1), Holding(503, 2, 1)]
    )

    assert answers == [(True, True), (True, False), (False, False)]
    assert len(ledger_trips) == 1
    assert check_holdings(sale_id=1, holdings=[]) == []


# --- make_pending ---------------------------------------------------------------------------------


def test_make_pending_adds_entry_with_time_of_redis() -> None:
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=ABOVE_53_BITS, user_id=7)
    confirm(sale_id=1, entries=[entry])
    before_ms = redis_now_ms()

    make_pending(sale_id=1, holdings=[Holding(ABOVE_53_BITS, 7, 1)])

    [again] = all_pending(sale_id=1)
    assert again.member == entry.member
    assert before_ms <= again.accepted_at_ms <= redis_now_ms()


def test_make_pending_keeps_time_of_pending_entry(dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    make_pending(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert dump() == before


@pytest.mark.parametrize("gone", [Holding(501, 8, 1), Holding(502, 7, 1), Holding(501, 7, 2)])
def test_make_pending_ignores_reservation_that_is_gone(dump: Dump, gone: Holding) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    make_pending(sale_id=1, holdings=[gone])

    assert dump() == before


def test_make_pending_uses_one_round_trip(ledger_trips: list[int]) -> None:
    open_ledger(1, total=100)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in range(1, 51)]
    confirm(sale_id=1, entries=entries)
    missing = [Holding(entry.order_id, entry.user_id, entry.unit) for entry in entries]
    make_pending(sale_id=1, holdings=missing[:1])
    ledger_trips.clear()

    make_pending(sale_id=1, holdings=missing)

    assert len(ledger_trips) == 1
    assert read_pending(sale_id=1) == set(missing)


# --- add_buyers -----------------------------------------------------------------------------------


def test_add_buyers_adds_missing_order_once() -> None:
    open_ledger(1)

    add_buyers(sale_id=1, holdings=[Holding(501, 7, 1)])
    add_buyers(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert held_order_ids(sale_id=1, user_id=7) == [501]


def test_add_buyers_never_replaces_another_order() -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=502, user_id=7)

    add_buyers(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert held_order_ids(sale_id=1, user_id=7) == [502]


def queue_positions(*, user_id: int) -> dict[int, int | None]:
    found = read_buyer_holdings(sale_id=1, user_id=user_id)
    return {unit.order_id: unit.queue_position for unit in found.units}


def test_buyer_without_unit_has_none_even_without_ledger() -> None:
    before_ms = redis_now_ms()

    found = read_buyer_holdings(sale_id=1, user_id=7)

    assert found.units == []
    assert before_ms <= found.now_ms <= redis_now_ms()


def test_queue_position_counts_entries_of_whole_sale() -> None:
    open_ledger(1, limit=2)
    for order_id, user_id in ((501, 7), (502, 8), (503, 7)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    assert read_buyer_holdings(sale_id=1, user_id=7).units == [
        HeldUnit(501, 7, 1, queue_position=1),
        HeldUnit(503, 7, 2, queue_position=3),
    ]


def test_queue_position_falls_and_ends_once_row_is_written() -> None:
    open_ledger(1)
    for order_id, user_id in ((501, 7), (502, 8), (503, 9)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    confirm(sale_id=1, entries=all_pending(sale_id=1)[:2])

    assert queue_positions(user_id=9) == {503: 1}
    assert queue_positions(user_id=7) == {501: None}


def test_largest_unit_and_ids_above_53_bits_are_exact(ledger: Any) -> None:
    keys = open_ledger(1)
    ledger.hset(keys.buyers, f"{ABOVE_53_BITS}:20", ABOVE_53_BITS + 2)
    ledger.zadd(keys.pending, {f"{ABOVE_53_BITS + 2}:{ABOVE_53_BITS}:20": 1})

    (unit,) = read_buyer_holdings(sale_id=1, user_id=ABOVE_53_BITS).units

    assert unit == HeldUnit(ABOVE_53_BITS + 2, ABOVE_53_BITS, 20, queue_position=1)


def test_reading_holdings_writes_nothing(dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    read_buyer_holdings(sale_id=1, user_id=7)

    assert dump() == before


def test_buyers_of_wrong_type_raise_ledger_unavailable(ledger: Any) -> None:
    ledger.set(LedgerKeys(1).buyers, "of a wrong type")

    with pytest.raises(LedgerUnavailable):
        read_buyer_holdings(sale_id=1, user_id=7)


# --- What is no entry -----------------------------------------------------------------------------

JUNK: dict[Any, float] = {
    "junk": 1, "1:2": 2, "a:b:c": 3, b"\xff": 4, f"{10**19}:1:1": 5, "-1:2:3": 6, "٣:1:1": 7,
    "9:9:1": float("inf"),
}  # fmt: skip


def test_members_that_are_no_entries_are_put_aside(ledger: Any) -> None:
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.zadd(keys.pending, JUNK)

    assert read_pending(sale_id=1) == {Holding(501, 7, 1)}
    assert ledger.zcard(keys.pending) == 1
    assert ledger.llen(keys.junk) == len(JUNK)
    assert ledger.lindex(keys.junk, -1).startswith("pending ")
    assert 0 < ledger.pttl(keys.junk) <= JUNK_KEPT_MS


def test_buyers_that_are_no_entries_are_put_aside(ledger: Any) -> None:
    keys = open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.hset(keys.buyers, mapping={"x": "y", "8:1": "junk", "9:1": "", b"\xff": b"\xff"})

    assert read_buyers(sale_id=1) == {Holding(501, 7, 1)}
    assert sorted(ledger.hkeys(keys.buyers)) == ["7:1", STATE]
    assert "buyers 8:1 junk" in ledger.lrange(keys.junk, 0, -1)


def test_junk_in_place_of_a_buyer_is_overwritten(ledger: Any) -> None:
    keys = open_ledger(1)
    ledger.hset(keys.buyers, "7:1", "junk")

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501
    assert ledger.hget(keys.buyers, "7:1") == "501"
    assert read_buyer_holdings(sale_id=1, user_id=7).units[0].order_id == 501
