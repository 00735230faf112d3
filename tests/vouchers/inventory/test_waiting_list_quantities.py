"""The waiting list with several units: what comes at once, what waits on, who is passed over."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.fixtures.vouchers import DropGuard
from tests.support.inspection import buyer_fields
from tests.support.sales import all_pending, change_state, open_ledger, reserve, reserve_entry
from tests.support.tiers import slow_after
from vouchers.inventory import reservations, waiting_list
from vouchers.inventory.holdings import held_order_ids
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    PendingEntry,
    Release,
    SoldOut,
    TooFew,
    release,
)
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_list import (
    LinePlace,
    NoLongerWaiting,
    UnitAvailable,
    join_waiting,
    leave_waiting,
    stored_place,
    waiting_position,
)

BLOCK = 29_000_000 << 32 | 0b1111 << 28 | 7 * 64
OTHER = BLOCK + 1_000 * 64
NOW_MS = 1_795_796_123_457
"""A time of today's size, whose score has digits to spare."""


def sell_out(*, total: int = 4, limit: int = 6) -> list[PendingEntry]:
    open_ledger(1, total=total, limit=limit)
    return [reserve_entry(sale_id=1, order_id=100 + n, user_id=n) for n in range(1, total + 1)]


def join(order_id: int, user_id: int, *, after_ms: int = 0, **wants: Any) -> LinePlace:
    wants["joined_at_ms"] = NOW_MS + after_ms
    return join_waiting(sale_id=1, order_id=order_id, user_id=user_id, **wants)


def place(order_id: int, user_id: int, quantity: int = 1) -> LinePlace | None:
    return waiting_position(sale_id=1, order_id=order_id, user_id=user_id, quantity=quantity)


def give_back(*entries: PendingEntry) -> None:
    release(sale_id=1, releases=[Release(entry, "cancelled") for entry in entries])


def held(user_id: int) -> list[int]:
    return held_order_ids(sale_id=1, user_id=user_id)


def test_what_comes_is_a_purchase_and_rest_keeps_place(ledger: Any) -> None:
    entries = sell_out()
    assert join(BLOCK, 7, quantity=3) == (1, 3)
    join(OTHER, 8, after_ms=1)

    give_back(*entries[:2])
    assert held(7) == [BLOCK, BLOCK + 1]
    assert place(BLOCK, 7, quantity=3) == (1, 1)
    assert place(OTHER, 8) == (2, 1)

    give_back(entries[2])
    assert held(7) == [BLOCK, BLOCK + 1, BLOCK + 64]
    assert place(BLOCK, 7, quantity=3) is None
    units = {it.order_id: it.purchase for it in all_pending(sale_id=1) if it.user_id == 7}
    assert units == {BLOCK: BLOCK, BLOCK + 1: BLOCK, BLOCK + 64: BLOCK + 64}


ALL = ("if all then return integer(units * ALL_OF", "if false then return integer(units * ALL_OF")


@pytest.mark.parametrize("with_guard", [True, False])
def test_who_wants_all_is_passed_over_and_served_at_once(
    ledger: Any, drop_guard: DropGuard, with_guard: bool
) -> None:
    if not with_guard:
        drop_guard(waiting_list, "_JOIN", *ALL)
    entries = sell_out()
    join(BLOCK, 7, quantity=2, all_or_none=True)
    join(501, 8, after_ms=1)
    join(502, 9, after_ms=2)

    give_back(entries[0])
    was_passed_over = held(7) == [] and held(8) == [501] and place(BLOCK, 7, 2) == (1, 2)
    assert was_passed_over is with_guard
    if with_guard:
        give_back(*entries[1:3])
        assert held(7) == [BLOCK, BLOCK + 33]
        assert (held(9), place(502, 9)) == ([], (1, 1))


def test_earliest_who_can_be_served_comes_first(ledger: Any) -> None:
    entries = sell_out(total=5)
    join(BLOCK, 7, quantity=3, all_or_none=True)
    join(OTHER, 8, after_ms=1, quantity=2, all_or_none=True)
    join(501, 9, after_ms=2)
    join(502, 10, after_ms=3)

    give_back(*entries[:4])

    assert {user: len(held(user)) for user in (7, 8, 9, 10)} == {7: 3, 8: 0, 9: 1, 10: 0}
    assert (place(OTHER, 8, 2), place(502, 10)) == ((1, 2), (2, 1))


def test_place_counts_all_who_joined_before(ledger: Any) -> None:
    sell_out()
    order = [(1, False), (2, True), (1, False), (6, True), (4, False), (2, True)]
    for n, (quantity, whole) in enumerate(order):
        ids = {"order_id": OTHER + 640 * n, "user_id": 20 + n, "after_ms": n}
        assert join(**ids, quantity=quantity, all_or_none=whole) == (n + 1, quantity)
    leave_waiting(sale_id=1, order_id=OTHER + 640, user_id=21)
    assert [place(OTHER + 640 * n, 20 + n, quantity=6) for n in range(6)] == [
        (1, 1), None, (2, 1), (3, 6), (4, 4), (5, 2),
    ]  # fmt: skip


def test_one_unit_is_stored_as_an_earlier_release_does(ledger: Any) -> None:
    sell_out()
    join(501, 7, quantity=1, all_or_none=True)
    join(BLOCK, 8, quantity=20)
    scores = dict(ledger.zrange(LedgerKeys(1).waiting, 0, -1, withscores=True))
    assert scores["501:7"] == NOW_MS
    assert int(scores[f"{BLOCK}:8"]) == NOW_MS, "nobody gets ahead by wanting more"


@pytest.mark.parametrize("quantity", [1, 2])
def test_unit_that_nobody_in_line_can_take_is_for_anybody(ledger: Any, quantity: int) -> None:
    entries = sell_out()
    join(BLOCK, 7, quantity=2, all_or_none=True)
    give_back(entries[0])
    reserve(sale_id=1, order_id=OTHER, user_id=20, quantity=quantity)
    assert held(20) == [OTHER]
    assert place(BLOCK, 7, 2) == (1, 2)


def test_newcomer_gets_nothing_that_the_line_can_take(ledger: Any) -> None:
    sell_out()
    join(BLOCK, 7, quantity=2, all_or_none=True)
    join(OTHER, 8, after_ms=1, quantity=3)
    change_state(1, total=snapshot(sale_id=1).terms.total + 4)
    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=601, user_id=20)
    assert (held(7), held(8)) == ([BLOCK, BLOCK + 33], [OTHER, OTHER + 1])
    assert place(OTHER, 8, quantity=3) == (1, 1)


def test_long_line_of_all_or_none_costs_a_newcomer_little(ledger: Any) -> None:
    entries = sell_out()
    join(BLOCK, 7, quantity=2, all_or_none=True)
    [(_, score)] = ledger.zrange(LedgerKeys(1).waiting, 0, -1, withscores=True)
    others = {f"{OTHER + 128 * n}:{1_000 + n}": score + n for n in range(2_000)}
    ledger.zadd(LedgerKeys(1).waiting, others)
    give_back(entries[0])
    ledger.config_resetstat()
    reserve(sale_id=1, order_id=601, user_id=20)
    stats = ledger.info("commandstats")
    assert sum(it["calls"] for it in stats.values()) < 30
    assert ledger.zcard(LedgerKeys(1).waiting) == 2_001


def test_single_unit_nobody_waits_for_needs_no_waiting(ledger: Any) -> None:
    entries = sell_out()
    join(BLOCK, 7, quantity=2, all_or_none=True)
    give_back(entries[0])
    with pytest.raises(UnitAvailable):
        join(501, 8)
    with pytest.raises(UnitAvailable):
        join(OTHER, 8, quantity=2)
    assert join(OTHER, 8, after_ms=1, quantity=2, all_or_none=True) == (2, 2)


def test_all_beyond_the_limit_is_refused_by_name(ledger: Any) -> None:
    sell_out(limit=2)
    with pytest.raises(TooFew) as too_few:
        join(BLOCK, 7, quantity=3, all_or_none=True)
    assert too_few.value.left == 2
    with pytest.raises(AlreadyOrdered) as refused:
        join(BLOCK, 1, quantity=2, all_or_none=True)
    assert refused.value.order_id == 101


def test_entry_wanting_more_than_its_limit_drops_out(ledger: Any) -> None:
    entries = sell_out(limit=3)
    join(BLOCK, 1, quantity=3)
    join(OTHER, 2, after_ms=1, quantity=2, all_or_none=True)
    reserve_more = {"2:2": "900", "2:3": "901"}
    change_state(1, total=6)
    ledger.hset(LedgerKeys(1).buyers, mapping=reserve_more)
    change_state(1, total=9)
    give_back(entries[3])
    assert held(1) == [101, BLOCK, BLOCK + 1], "the limit leaves two of three"
    assert held(2) == [102, 900, 901]
    assert ledger.zcard(LedgerKeys(1).waiting) == 0


def test_lost_entry_is_restored_without_what_it_got(ledger: Any) -> None:
    entries = sell_out()
    join(BLOCK, 7, quantity=3)
    give_back(*entries[:2])
    ledger.delete(LedgerKeys(1).waiting)
    ended = next(it for it in all_pending(sale_id=1) if it.order_id == BLOCK + 1)
    change_state(1, paused=1)
    give_back(ended)
    assert join(BLOCK, 7, quantity=3, restoring=True) == (1, 1)
    change_state(1, paused=0)
    give_back(entries[2])
    assert held(7) == [BLOCK, BLOCK + 64]
    for restoring in (True, False):
        with pytest.raises(NoLongerWaiting):
            join(BLOCK, 7, quantity=3, restoring=restoring)


def test_leaving_leaves_the_rest(ledger: Any) -> None:
    entries = sell_out()
    join(BLOCK, 7, quantity=3)
    give_back(entries[0])
    assert leave_waiting(sale_id=1, order_id=BLOCK, user_id=7, quantity=3)
    give_back(entries[1])
    assert held(7) == [BLOCK]
    assert snapshot(sale_id=1).remaining == 1


@pytest.mark.parametrize("tail", [1, 999_999_930, 999_999_999])
def test_ids_after_are_exact(ledger: Any, tail: int) -> None:
    order_id = 124_554_051_000_000_000 + tail
    entries = sell_out()
    join(order_id, 7, quantity=4, all_or_none=True)
    give_back(*entries)
    assert held(7) == [order_id, order_id + 33, order_id + 34, order_id + 35]
    assert all(buyer_fields(1))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("wants", "served", "expected"),
    [
        ((1, False), [], (BLOCK, NOW_MS)),
        ((1, False), [BLOCK], None),
        ((3, False), [], (BLOCK, NOW_MS + 2 / 32)),
        ((3, False), [BLOCK, BLOCK + 1], (BLOCK + 64, NOW_MS)),
        ((4, False), [BLOCK, BLOCK + 64], (BLOCK + 128, NOW_MS + 1 / 32)),
        ((2, False), [BLOCK, BLOCK + 64], None),
        ((2, False), [BLOCK, BLOCK + 1], None),
        ((3, True), [], (BLOCK, 3 * 10**13 + NOW_MS)),
        ((3, True), [BLOCK], None),
    ],
)
def test_ledger_is_built_with_what_is_still_wanted(
    wants: tuple[int, bool], served: list[int], expected: tuple[int, float] | None
) -> None:
    quantity, whole = wants
    ids = set(map(str, served))
    found = stored_place(BLOCK, NOW_MS, quantity=quantity, all_or_none=whole, served=ids)
    assert found == expected


@pytest.mark.parametrize(("quantity", "whole"), [(1, False), (2, False), (20, False), (20, True)])
def test_script_and_build_write_the_same_score(ledger: Any, quantity: int, whole: bool) -> None:
    sell_out(limit=20)
    join(BLOCK, 7, quantity=quantity, all_or_none=whole)
    [(_, score)] = ledger.zrange(LedgerKeys(1).waiting, 0, -1, withscores=True)
    built = stored_place(BLOCK, NOW_MS, quantity=quantity, all_or_none=whole, served=())
    assert built == (BLOCK, score)


PROMISED = ("free <= promised", "free <= redis.call('ZCARD', KEYS[6])")


def test_control_unit_that_nobody_can_take_stays_unsold(ledger: Any, drop_guard: DropGuard) -> None:
    drop_guard(reservations, "_RESERVE", *PROMISED)
    entries = sell_out()
    join(BLOCK, 7, quantity=2, all_or_none=True)
    give_back(entries[0])
    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=601, user_id=20)


@dataclass
class Waiting:
    """A buyer in a plain list, which is searched from its head."""

    order_id: int
    user_id: int
    wanted: int
    whole: bool


def serve(line: list[Waiting], held: Counter[int], free: int, limit: int) -> None:
    """Give free units to the first of the list who can have them, again and again."""
    while free and (fits := [it for it in line if not it.whole or it.wanted <= free]):
        first, spare = fits[0], limit - held[fits[0].user_id]
        count = min(first.wanted, free, spare)
        if first.whole and count < first.wanted:
            count = 0
        held[first.user_id] += count
        free -= count
        first.wanted -= count
        if free or not first.wanted or count == spare:
            line.remove(first)


@pytest.mark.parametrize("seed", slow_after(2, range(12)))
def test_line_is_served_as_a_plain_list_would_be(ledger: Any, seed: int) -> None:
    rng, limit = Random(seed), 4
    sell_out(total=6, limit=limit)
    line, held = list[Waiting](), Counter[int](dict.fromkeys(range(1, 7), 1))
    for n in range(40):
        others = [it for it in all_pending(sale_id=1) if rng.random() < 0.2]
        give_back(*others)
        held.subtract(it.user_id for it in others)
        total = snapshot(sale_id=1).terms.total
        serve(line, held, total - held.total(), limit)
        user, quantity = rng.randint(1, 20), rng.randint(1, 4)
        whole = quantity > 1 and rng.random() < 0.5
        entry = Waiting(OTHER + 640 * n, user, quantity, whole)
        with suppress(UnitAvailable, AlreadyOrdered):
            join(entry.order_id, user, after_ms=n, quantity=quantity, all_or_none=whole)
            line.append(entry)
        assert Counter(it.user_id for it in all_pending(sale_id=1)) == +held
        found = [place(it.order_id, it.user_id, quantity=4) for it in line]
        assert found == [(at, it.wanted) for at, it in enumerate(line, 1)]
