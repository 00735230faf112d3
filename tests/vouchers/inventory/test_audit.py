"""The ledger buyer by buyer, as reconciling reads and mends it."""

from __future__ import annotations

import pytest

from tests.support.sales import all_pending, open_ledger, redis_now_ms, reserve_entry
from vouchers.inventory.audit import (
    add_buyers,
    check_holdings,
    make_pending,
    read_buyers,
    read_pending,
)
from vouchers.inventory.keys import Holding, LedgerKeys, LedgerUnavailable
from vouchers.inventory.reservations import confirm, held_order_ids, reserve

ABOVE_53_BITS = 9_007_199_254_740_993


def test_buyers_and_pending_are_read_as_holdings_without_the_sentinel():
    open_ledger(1, limit=2)
    done = reserve_entry(sale_id=1, order_id=ABOVE_53_BITS, user_id=7)
    reserve(sale_id=1, order_id=502, user_id=7)
    confirm(sale_id=1, entries=[done])

    assert read_buyers(sale_id=1) == {Holding(ABOVE_53_BITS, 7, 1), Holding(502, 7, 2)}
    assert read_pending(sale_id=1) == {Holding(502, 7, 2)}


def test_a_sale_that_is_not_loaded_holds_nobody():
    assert read_buyers(sale_id=1) == set()
    assert read_pending(sale_id=1) == set()


def test_more_buyers_than_one_step_reads_are_all_read(ledger):
    keys = LedgerKeys(1)
    everyone = {Holding(10_000 + user_id, user_id, 1) for user_id in range(1, 5_001)}
    ledger.hset(keys.buyers, mapping={"epoch": 1, **{h.field: h.order_id for h in everyone}})
    ledger.zadd(keys.pending, {h.member: h.user_id for h in everyone})

    assert read_buyers(sale_id=1) == everyone
    assert read_pending(sale_id=1) == everyone


def test_what_is_still_held_is_told_of_each_in_order(ledger_trips):
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


# --- make_pending --------------------------------------------------------------------------------


def test_a_buyer_that_is_not_pending_is_put_back_by_the_time_of_redis():
    open_ledger(1)
    entry = reserve_entry(sale_id=1, order_id=ABOVE_53_BITS, user_id=7)
    confirm(sale_id=1, entries=[entry])
    before_ms = redis_now_ms()

    make_pending(sale_id=1, holdings=[Holding(ABOVE_53_BITS, 7, 1)])

    [again] = all_pending(sale_id=1)
    assert again.member == entry.member
    assert before_ms <= again.accepted_at_ms <= redis_now_ms()


def test_a_buyer_that_is_pending_keeps_its_time(dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    make_pending(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert dump() == before


@pytest.mark.parametrize("gone", [Holding(501, 8, 1), Holding(502, 7, 1), Holding(501, 7, 2)])
def test_a_reservation_that_is_gone_does_not_become_pending(dump, gone):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    make_pending(sale_id=1, holdings=[gone])

    assert dump() == before


def test_many_buyers_are_put_back_in_one_round_trip(ledger_trips):
    open_ledger(1, total=100)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in range(1, 51)]
    confirm(sale_id=1, entries=entries)
    missing = [Holding(entry.order_id, entry.user_id, entry.unit) for entry in entries]
    make_pending(sale_id=1, holdings=missing[:1])
    ledger_trips.clear()

    make_pending(sale_id=1, holdings=missing)

    assert len(ledger_trips) == 1
    assert read_pending(sale_id=1) == set(missing)


# --- add_buyers ----------------------------------------------------------------------------------


def test_a_live_order_that_the_ledger_lacks_is_entered():
    open_ledger(1)

    add_buyers(sale_id=1, holdings=[Holding(501, 7, 1)])
    add_buyers(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]


def test_a_live_order_is_never_entered_over_another_buyers_entry():
    open_ledger(1)
    reserve(sale_id=1, order_id=502, user_id=7)

    add_buyers(sale_id=1, holdings=[Holding(501, 7, 1)])

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [502]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: read_buyers(sale_id=1),
        lambda: read_pending(sale_id=1),
        lambda: check_holdings(sale_id=1, holdings=[Holding(1, 1, 1)]),
        lambda: make_pending(sale_id=1, holdings=[Holding(1, 1, 1)]),
        lambda: add_buyers(sale_id=1, holdings=[Holding(1, 1, 1)]),
    ],
)
def test_a_redis_that_is_gone_is_unavailable(redis_gone, ask):
    with redis_gone(), pytest.raises(LedgerUnavailable):
        ask()
