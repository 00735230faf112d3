"""A sale's state in the ledger: snapshots, and writing the terms of its row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seckill_site.clocks.machine import epoch_ms
from tests.fixtures.vouchers import Dump
from tests.support.sales import make_sale, open_ledger, redis_now_ms, reserve, reserve_entry
from vouchers.inventory.keys import STATE, LedgerKeys, NotLoaded
from vouchers.inventory.sale_state import (
    BelowTaken,
    LedgerTerms,
    parse_state,
    snapshot,
    snapshots,
    write_terms,
)
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import SaleState

OPEN = LedgerTerms(total=5, begins_at_ms=0, ends_at_ms=2**50, limit=1, paused=False, rebuy=True)
NEW = LedgerTerms(total=9, begins_at_ms=1_000, ends_at_ms=2_000, limit=2, paused=True, rebuy=True)


# --- snapshot -------------------------------------------------------------------------------------


def test_snapshot_has_all_terms_and_counts(ledger: Any) -> None:
    before_ms = redis_now_ms()
    ends_at_ms = before_ms + 60_000
    open_ledger(1, total=5, epoch=3, begins_at_ms=10, ends_at_ms=ends_at_ms, limit=2, rebuy=0)
    first = reserve_entry(sale_id=1, order_id=501, user_id=7)
    reserve(sale_id=1, order_id=502, user_id=7)
    ledger.zadd(LedgerKeys(1).waiting, {"503:8": 1, "504:9": 2, "505:10": 3})

    found = snapshot(sale_id=1)

    assert found.terms == LedgerTerms(5, 10, ends_at_ms, 2, paused=False, rebuy=False)
    assert (found.epoch, found.taken, found.remaining, found.pending) == (3, 2, 3, 2)
    assert found.waiting == 3
    assert found.oldest_pending_ms == first.accepted_at_ms
    assert before_ms <= found.loaded_at_ms <= found.now_ms <= redis_now_ms()


def test_snapshot_writes_nothing(dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    snapshots(sale_ids=[1, 2])

    assert dump() == before


def test_snapshot_without_pending_entries_has_no_oldest() -> None:
    open_ledger(1)

    assert snapshot(sale_id=1).oldest_pending_ms is None


def test_snapshots_use_one_round_trip(ledger_trips: list[int]) -> None:
    for sale_id in range(1, 31):
        open_ledger(sale_id, total=sale_id)
    snapshots(sale_ids=[1])
    ledger_trips.clear()

    found = snapshots(sale_ids=range(1, 32))

    assert len(ledger_trips) == 1
    assert found[31] is None
    assert {sale_id: s.terms.total for sale_id, s in found.items() if s} == {
        sale_id: sale_id for sale_id in range(1, 31)
    }


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"ends_at_ms": 1, "paused": 1, "total": 0}, SaleState.ENDED),
        ({"paused": 1, "begins_at_ms": 2**50, "ends_at_ms": 2**51, "total": 0}, SaleState.PAUSED),
        ({"begins_at_ms": 2**50, "ends_at_ms": 2**51, "total": 0}, SaleState.SCHEDULED),
        ({"total": 0}, SaleState.SOLD_OUT),
        ({}, SaleState.OPEN),
    ],
)
def test_state_is_first_that_applies(changes: dict[str, Any], state: SaleState) -> None:
    open_ledger(1, **changes)

    assert snapshot(sale_id=1).state is state


# --- write_terms ----------------------------------------------------------------------------------


def test_written_terms_leave_epoch_and_buyers(ledger: Any) -> None:
    keys = open_ledger(1, epoch=3)
    reserve(sale_id=1, order_id=501, user_id=7)

    write_terms(sale_id=1, terms=NEW)

    found = snapshot(sale_id=1)
    assert (found.terms, found.epoch, found.taken) == (NEW, 3, 1)
    assert ledger.hget(keys.buyers, "7:1") == "501"


def test_total_below_taken_units_is_refused(dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=1)
    reserve(sale_id=1, order_id=502, user_id=2)
    before = dump()

    with pytest.raises(BelowTaken) as refused:
        write_terms(sale_id=1, terms=replace(OPEN, total=1), refuse_below_taken=True)

    assert (refused.value.taken, str(refused.value)) == (2, "2 units are taken")
    assert dump() == before


def test_total_equal_to_taken_units_is_written() -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=1)

    write_terms(sale_id=1, terms=replace(OPEN, total=1), refuse_below_taken=True)

    assert snapshot(sale_id=1).state is SaleState.SOLD_OUT


def test_total_below_taken_may_be_written_and_remaining_is_zero() -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=1)

    write_terms(sale_id=1, terms=replace(OPEN, total=0))

    found = snapshot(sale_id=1)
    assert (found.terms.total, found.taken, found.remaining) == (0, 1, 0)


@pytest.mark.parametrize(("total", "known"), [(1, True), (2, False), (0, False)])
def test_sold_out_time_is_cleared_when_total_changes(ledger: Any, total: int, known: bool) -> None:
    keys = open_ledger(1, total=1)
    reserve(sale_id=1, order_id=501, user_id=7)

    write_terms(sale_id=1, terms=replace(OPEN, total=total))

    assert bool(parse_state(ledger.hget(keys.buyers, STATE))["sold_out_at_ms"]) is known


def test_terms_without_ledger_create_no_key(ledger: Any) -> None:
    with pytest.raises(NotLoaded):
        write_terms(sale_id=1, terms=NEW)

    assert not ledger.exists(LedgerKeys(1).buyers)


# --- The text of the state ------------------------------------------------------------------------

ROOM = RoomTerms(opened_ms=1_700, rate=20, base=3, since_ms=1_600, shuffled=True)
OLD_WORDS = 11
"""The words of a state that the release before the waiting room reads."""


@pytest.mark.parametrize("sold_out", [False, True])
@pytest.mark.parametrize("room", [None, ROOM, replace(ROOM, shuffled=False)])
def test_state_with_and_without_a_room_is_read_back(
    ledger: Any, room: RoomTerms | None, sold_out: bool
) -> None:
    keys = open_ledger(1, total=1)
    terms = replace(OPEN, total=1, room=room)
    write_terms(sale_id=1, terms=terms)
    if sold_out:
        reserve(sale_id=1, order_id=501, user_id=7)

    text = ledger.hget(keys.buyers, STATE)
    words = parse_state(text)

    assert words["mode_terms"] == (room.word() if room else "")
    assert bool(words["sold_out_at_ms"]) is sold_out
    assert len(text.split(" ")) == OLD_WORDS + bool(room)
    assert snapshot(sale_id=1).terms == terms


def test_room_is_closed_by_writing_terms(ledger: Any) -> None:
    keys = open_ledger(1, mode_terms=ROOM.word())

    write_terms(sale_id=1, terms=OPEN)

    assert snapshot(sale_id=1).line is None
    assert parse_state(ledger.hget(keys.buyers, STATE))["mode_terms"] == ""


# --- LedgerTerms ----------------------------------------------------------------------------------

TERMS = LedgerTerms(
    total=5, begins_at_ms=1_000, ends_at_ms=2_000, limit=2, paused=False, rebuy=True
)


@pytest.mark.parametrize(
    ("narrower", "wider"),
    [
        ({"total": 4}, {"total": 6}),
        ({"begins_at_ms": 1_001}, {"begins_at_ms": 999}),
        ({"ends_at_ms": 1_999}, {"ends_at_ms": 2_001}),
        ({"limit": 1}, {"limit": 3}),
        ({"paused": True}, {"paused": False}),
        ({"rebuy": False}, {"rebuy": True}),
        ({"room": ROOM}, {}),
    ],
)
def test_narrowed_terms_keep_only_what_both_allow(
    narrower: dict[str, Any], wider: dict[str, Any]
) -> None:
    narrow, wide = replace(TERMS, **narrower), replace(TERMS, **wider)

    assert TERMS.narrowed_to(narrow) == narrow.narrowed_to(TERMS) == narrow
    assert TERMS.narrowed_to(wide) == wide.narrowed_to(TERMS) == TERMS


@pytest.mark.django_db
def test_terms_of_row_become_script_arguments() -> None:
    sale = make_sale(stock=4, limit=2, paused=True, rebuy=False)

    found = LedgerTerms.from_sale(sale)

    window = epoch_ms(sale.begins_at), epoch_ms(sale.ends_at)
    assert found == LedgerTerms(4, *window, 2, paused=True, rebuy=False, identity=sale.identity)
    assert found.script_args() == [4, *window, 2, 1, 0, sale.identity, ""]


@pytest.mark.django_db
def test_room_of_row_becomes_one_script_argument() -> None:
    sale = make_sale(room="busy", room_opened_ms=7, room_base=3, room_since_ms=9, room_rate=20)

    assert LedgerTerms.from_sale(sale).script_args()[-1] == "7:20:3:9:a"


def test_narrowed_terms_have_the_slower_room() -> None:
    slow, fast = replace(TERMS, room=ROOM), replace(TERMS, room=replace(ROOM, rate=21))

    assert slow.narrowed_to(fast) == fast.narrowed_to(slow) == slow
