"""The waiting list by the contracts above its scripts: who joins, who leaves, who gets the unit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orders.fulfilment.worker import fulfill_sale
from tests.support.sales import (
    all_pending,
    make_loaded_sale,
    make_user,
    open_ledger,
    redis_now_ms,
    reserve_entry,
    why_ended,
)
from vouchers.catalogue.sales import change_stock
from vouchers.inventory import reservations, waiting_list
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded, ledger_script
from vouchers.inventory.reservations import (
    AlreadyOrdered,
    NotStarted,
    Release,
    SaleEnded,
    SoldOut,
    confirm,
    held_order_ids,
    release,
    reserve,
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
CONTENTS = ("sale", "buyers", "pending", "ended", "tries", "barred", "waiting")


@pytest.fixture(autouse=True)
def conserved(ledger):
    """After each test: every unit is with one order or on sale, and who has one waits no more."""
    yield
    found = snapshots(sale_ids=[1])[1]
    if found is None:
        return
    keys = LedgerKeys(1)
    buyers = ledger.hgetall(keys.buyers)
    del buyers["epoch"]
    assert found.remaining + len(buyers) == found.terms.total
    assert len(set(buyers.values())) == len(buyers), "an order has one unit"
    for member in ledger.zrange(keys.pending, 0, -1):
        order_id, _, field = member.partition(":")
        assert buyers[field] == order_id
    assert not {str(order_id) for order_id in waiting_order_ids(sale_id=1)} & set(buyers.values())


def sold_out(*, total=1, **changes):
    """Open a sale and sell all of it, to the users 1 to ``total``; return their entries."""
    open_ledger(1, total=total, **changes)
    return [reserve_entry(sale_id=1, order_id=100 + n, user_id=n) for n in range(1, total + 1)]


def join(order_id, user_id, *, at_ms=None):
    """Join the line of sale 1, by default in the order in which the ids rise."""
    joined_at_ms = order_id if at_ms is None else at_ms
    return join_waiting(sale_id=1, order_id=order_id, user_id=user_id, joined_at_ms=joined_at_ms)


def line(ledger):
    """Return ``<order id>:<user>`` of all who wait, first in line first."""
    return ledger.zrange(LedgerKeys(1).waiting, 0, -1)


def give_back(*entries, **fields):
    release(sale_id=1, releases=[Release(entry, "cancelled", **fields) for entry in entries])


def change_figures(**changes):
    """Write the ledger's own figures with these changes, as an edit of the row does."""
    write_terms(sale_id=1, terms=replace(snapshot(sale_id=1).terms, **changes))


def free_units_without_giving(ledger, count=1):
    """Let units come back with nobody there to give them, as where a ledger was loaded."""
    ledger.hincrby(LedgerKeys(1).sale, "total", count)


def past(ms=1_000):
    return redis_now_ms() - ms


def coming(ms=60_000):
    return redis_now_ms() + ms


# --- joining -------------------------------------------------------------------------------------


def test_who_joins_is_told_the_place_and_the_ledger_holds_nothing_else_of_it(ledger):
    sold_out()
    keys = LedgerKeys(1)
    before = ledger.hgetall(keys.buyers), all_pending(sale_id=1)

    assert [join(501, 7, at_ms=1_000), join(502, 8, at_ms=2_000)] == [1, 2]

    assert ledger.zrange(keys.waiting, 0, -1, withscores=True) == [
        ("501:7", 1_000),
        ("502:8", 2_000),
    ]
    assert (ledger.hgetall(keys.buyers), all_pending(sale_id=1)) == before
    assert snapshot(sale_id=1).waiting == 2


def test_the_place_goes_by_the_time_of_joining_not_of_asking():
    """Else who was in line before Redis was lost would come after those who joined since."""
    sold_out()
    join(501, 7, at_ms=2_000)

    assert join(502, 8, at_ms=1_000) == 1

    assert waiting_position(sale_id=1, order_id=501, user_id=7) == 2


def test_who_joins_again_keeps_the_place_and_nothing_is_written(dump):
    sold_out()
    join(501, 7, at_ms=1_000)
    join(502, 8, at_ms=2_000)
    before = dump()

    assert join(501, 7, at_ms=3_000) == 1

    assert dump() == before


def test_ids_above_53_bits_are_kept_digit_by_digit(ledger):
    [entry] = sold_out()
    order_id, user_id = ABOVE_53_BITS, ABOVE_53_BITS + 2

    join(order_id, user_id, at_ms=1)
    join(order_id + 1, user_id + 1, at_ms=2)

    assert line(ledger) == [f"{order_id}:{user_id}", f"{order_id + 1}:{user_id + 1}"]
    assert waiting_order_ids(sale_id=1) == {order_id, order_id + 1}
    assert waiting_position(sale_id=1, order_id=order_id, user_id=user_id) == 1
    give_back(entry)
    assert ledger.hgetall(LedgerKeys(1).buyers) == {"epoch": "1", f"{user_id}:1": str(order_id)}
    [given] = all_pending(sale_id=1)
    assert (given.order_id, given.user_id) == (order_id, user_id)
    with pytest.raises(AlreadyOrdered) as refused:
        join(order_id + 4, user_id)
    assert refused.value.order_id == order_id


def test_one_may_wait_in_a_paused_sale_though_units_are_free(ledger):
    open_ledger(1, paused=1)

    assert join(501, 7) == 1

    assert line(ledger) == ["501:7"]


def test_who_comes_while_others_wait_for_a_free_unit_waits_behind_them(ledger):
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger)

    assert join(502, 8) == 2


def test_who_holds_a_unit_of_several_may_wait_for_another(ledger):
    [entry] = sold_out(limit=2)

    assert join(501, entry.user_id) == 1

    assert line(ledger) == [f"501:{entry.user_id}"]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (lambda: {}, UnitAvailable),
        (lambda: {"begins_at_ms": coming()}, NotStarted),
        (lambda: {"ends_at_ms": past()}, SaleEnded),
        (lambda: {"total": 0, "begins_at_ms": coming()}, NotStarted),
        (lambda: {"total": 0, "ends_at_ms": past()}, SaleEnded),
        (lambda: {"paused": 1, "ends_at_ms": past()}, SaleEnded),
    ],
)
def test_each_refusal_has_its_name_and_writes_nothing(dump, changes, refusal):
    open_ledger(1, **changes())
    before = dump()

    with pytest.raises(refusal):
        join(501, 7)

    assert dump() == before


def test_who_has_as_many_units_as_the_limit_allows_is_told_of_the_order(dump):
    [entry] = sold_out()
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        join(501, entry.user_id)

    assert refused.value.order_id == entry.order_id
    assert dump() == before


def test_who_has_had_an_order_is_told_of_it_where_that_bars_another(dump):
    entry, _ = sold_out(total=2, rebuy=0)
    give_back(entry, had_order=True)
    reserve(sale_id=1, order_id=401, user_id=4)
    before = dump()

    with pytest.raises(AlreadyOrdered) as refused:
        join(501, entry.user_id)

    assert refused.value.order_id == entry.order_id
    assert dump() == before


def test_who_has_had_an_order_waits_where_one_may_buy_again():
    entry, _ = sold_out(total=2, rebuy=1)
    give_back(entry, had_order=True)
    reserve(sale_id=1, order_id=401, user_id=4)

    assert join(501, entry.user_id) == 1


def test_who_was_given_the_unit_is_told_that_the_turn_came(dump):
    [entry] = sold_out()
    join(501, 7)
    give_back(entry)
    before = dump()

    with pytest.raises(NoLongerWaiting):
        join(501, 7)

    assert dump() == before


def test_a_turn_that_came_and_is_over_is_told_as_one_that_came(dump):
    [entry] = sold_out()
    join(501, 7)
    give_back(entry)
    [given] = all_pending(sale_id=1)
    release(sale_id=1, releases=[Release(given, "inactive_buyer")])
    before = dump()

    with pytest.raises(NoLongerWaiting):
        join(501, 7)

    assert dump() == before


def test_an_order_id_that_ended_for_another_buyer_says_nothing():
    entry, _ = sold_out(total=2)
    give_back(entry)
    reserve(sale_id=1, order_id=401, user_id=4)

    assert join(entry.order_id, 77) == 1


@pytest.mark.parametrize("change", [{"paused": 1}, {"ends_at_ms": 1}, {"begins_at_ms": 2**50}])
def test_whose_turn_came_hears_that_first_also_when_closed(ledger, change):
    [entry] = sold_out()
    join(501, 7)
    give_back(entry)
    ledger.hset(LedgerKeys(1).sale, mapping=change)

    with pytest.raises(NoLongerWaiting):
        join(501, 7)
    with pytest.raises(AlreadyOrdered) as refused:
        join(502, 7)
    assert refused.value.order_id == 501


@pytest.mark.parametrize("name", CONTENTS)
def test_nobody_waits_in_a_ledger_that_is_not_whole(ledger, dump, name):
    sold_out()
    key = getattr(LedgerKeys(1), name)
    ledger.delete(key)
    ledger.set(key, "of a wrong type")
    before = dump()

    with pytest.raises(NotLoaded):
        join(501, 7)

    assert dump() == before


def test_the_codes_of_the_script_are_those_of_its_wrapper():
    source = ledger_script("join_waiting").source

    assert set(re.findall(r"return \{?'([A-Z_]+)'", source)) == set(waiting_list.JoinCode)


# --- leaving and looking -------------------------------------------------------------------------


def test_who_leaves_is_out_of_line_once_and_the_others_move_up():
    sold_out()
    join(501, 7)
    join(502, 8)

    assert leave_waiting(sale_id=1, order_id=501, user_id=7)
    assert not leave_waiting(sale_id=1, order_id=501, user_id=7)

    assert waiting_position(sale_id=1, order_id=501, user_id=7) is None
    assert waiting_position(sale_id=1, order_id=502, user_id=8) == 1


def test_who_left_is_given_nothing():
    [entry] = sold_out()
    join(501, 7)
    join(502, 8)
    leave_waiting(sale_id=1, order_id=501, user_id=7)

    give_back(entry)

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == []
    assert held_order_ids(sale_id=1, user_id=8, limit=1) == [502]


def test_who_left_may_join_again_at_the_end():
    sold_out()
    join(501, 7, at_ms=1_000)
    join(502, 8, at_ms=2_000)
    leave_waiting(sale_id=1, order_id=501, user_id=7)

    assert join(501, 7, at_ms=3_000) == 2


@pytest.mark.parametrize(("order_id", "user_id"), [(501, 8), (502, 7), (50, 17)])
def test_nobody_takes_another_out_of_line(ledger, order_id, user_id):
    sold_out()
    join(501, 7)

    assert not leave_waiting(sale_id=1, order_id=order_id, user_id=user_id)

    assert waiting_position(sale_id=1, order_id=order_id, user_id=user_id) is None
    assert line(ledger) == ["501:7"]


def test_the_whole_line_is_read_however_long_it_is(ledger):
    open_ledger(1, total=0)
    ids = range(1_000, 7_000)
    ledger.zadd(LedgerKeys(1).waiting, {f"{order_id}:{order_id}": order_id for order_id in ids})

    assert waiting_order_ids(sale_id=1) == set(ids)
    assert waiting_order_ids(sale_id=2) == set()


# --- giving: a unit comes back -------------------------------------------------------------------


def test_a_unit_that_comes_back_is_promised_to_the_first_in_line_under_their_own_id(ledger):
    [entry] = sold_out()
    join(501, 7)
    join(502, 8)
    before_ms = redis_now_ms()

    give_back(entry)

    assert ledger.hgetall(LedgerKeys(1).buyers) == {"epoch": "1", "7:1": "501"}
    [given] = all_pending(sale_id=1)
    assert given.member == "501:7:1"
    assert before_ms <= given.accepted_at_ms <= redis_now_ms()
    assert line(ledger) == ["502:8"]
    assert snapshot(sale_id=1).remaining == 0
    assert why_ended(sale_id=1, order_id=entry.order_id) == "1:cancelled"


def test_who_came_first_is_served_first(ledger):
    entries = sold_out(total=3)
    for order_id, user_id, at_ms in ((501, 7, 3), (502, 8, 1), (503, 9, 2)):
        join(order_id, user_id, at_ms=at_ms)

    waiting = [line(ledger)]
    for entry in entries:
        give_back(entry)
        waiting.append(line(ledger))

    assert waiting == [["502:8", "503:9", "501:7"], ["503:9", "501:7"], ["501:7"], []]
    assert {entry.order_id for entry in all_pending(sale_id=1)} == {501, 502, 503}


def test_units_that_come_back_at_once_go_to_as_many_of_the_first(ledger):
    entries = sold_out(total=3)
    for n in (1, 2, 3):
        join(500 + n, 10 + n)

    give_back(*entries[:2])

    held = ledger.hgetall(LedgerKeys(1).buyers)
    assert held == {"epoch": "1", "3:1": "103", "11:1": "501", "12:1": "502"}
    assert line(ledger) == ["503:13"]


def test_what_nobody_waits_for_is_on_sale_again(ledger):
    entries = sold_out(total=3)
    join(501, 7)

    give_back(*entries)

    assert snapshot(sale_id=1).remaining == 2
    assert line(ledger) == []
    reserve(sale_id=1, order_id=601, user_id=20)


def test_one_buyer_who_waits_twice_gets_two_units_where_the_limit_allows(ledger):
    entries = sold_out(total=2, limit=2)
    join(501, 7)
    join(502, 7)

    give_back(*entries)

    assert ledger.hgetall(LedgerKeys(1).buyers) == {"epoch": "1", "7:1": "501", "7:2": "502"}


def test_a_replayed_release_gives_nothing_more(dump):
    entries = sold_out(total=2)
    join(501, 7)
    join(502, 8)
    give_back(entries[0])
    before = dump()

    give_back(entries[0])

    assert dump() == before


def test_a_release_that_puts_a_live_order_in_its_place_frees_nothing(ledger):
    [entry] = sold_out()
    join(501, 7)

    give_back(entry, live_order_id=99)

    assert line(ledger) == ["501:7"]
    assert held_order_ids(sale_id=1, user_id=7, limit=1) == []


def test_a_unit_that_was_oversold_is_given_to_nobody(ledger):
    entries = sold_out(total=2)
    join(501, 7)
    change_figures(total=1)

    give_back(entries[0])

    assert line(ledger) == ["501:7"]
    assert snapshot(sale_id=1).taken == 1


def test_a_unit_that_was_given_and_not_wanted_goes_to_the_next():
    [entry] = sold_out()
    join(501, 7)
    join(502, 8)
    give_back(entry)
    [given] = all_pending(sale_id=1)

    give_back(given)

    assert held_order_ids(sale_id=1, user_id=8, limit=1) == [502]


@pytest.mark.parametrize("lost", ["sale", "buyers"])
def test_where_the_ledger_was_lost_a_release_gives_nothing(ledger, lost):
    [entry] = sold_out()
    join(501, 7)
    ledger.delete(getattr(LedgerKeys(1), lost))

    give_back(entry)

    assert line(ledger) == ["501:7"]
    assert "7:1" not in ledger.hgetall(LedgerKeys(1).buyers)


CLOSED = [
    {"paused": 1},
    {"begins_at_ms": 2**50, "ends_at_ms": 2**51},
    {"ends_at_ms": 1},
]


@pytest.mark.parametrize("closed", CLOSED)
def test_while_the_sale_is_closed_a_unit_that_comes_back_is_kept_and_all_wait_on(ledger, closed):
    [entry] = sold_out()
    join(501, 7)
    ledger.hset(LedgerKeys(1).sale, mapping=closed)

    give_back(entry)

    assert line(ledger) == ["501:7"]
    assert all_pending(sale_id=1) == []
    assert snapshot(sale_id=1).remaining == 1


# --- giving: the figures change ------------------------------------------------------------------


def test_units_that_are_added_go_to_those_who_wait(ledger):
    sold_out()
    for n in (1, 2, 3):
        join(500 + n, 10 + n)

    change_figures(total=3)

    assert [entry.order_id for entry in all_pending(sale_id=1)] == [101, 501, 502]
    assert line(ledger) == ["503:13"]


@pytest.mark.parametrize("closed", [{"paused": True}, {"begins_at_ms": 2**50}, {"ends_at_ms": 1}])
def test_units_that_are_added_while_closed_are_given_once_the_sale_goes_on(ledger, closed):
    sold_out()
    join(501, 7)
    open_again = {name: getattr(snapshot(sale_id=1).terms, name) for name in closed}

    change_figures(total=2, **closed)
    assert line(ledger) == ["501:7"]
    assert snapshot(sale_id=1).remaining == 1

    change_figures(**open_again)
    assert line(ledger) == []
    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]


def test_a_total_that_is_refused_gives_nothing(ledger, dump):
    sold_out(total=2)
    join(501, 7)
    free_units_without_giving(ledger)
    before = dump()

    lower = replace(snapshot(sale_id=1).terms, total=1)
    with pytest.raises(BelowTaken):
        write_terms(sale_id=1, terms=lower, refuse_below_taken=True)

    assert dump() == before


def test_figures_that_free_nothing_give_nothing(ledger):
    sold_out(total=2)
    join(501, 7)

    change_figures(limit=2)

    assert line(ledger) == ["501:7"]


@pytest.mark.django_db(transaction=True)
def test_an_edit_of_the_row_gives_the_units_that_it_adds():
    sale, ada, bob = make_loaded_sale(stock=1), make_user("ada"), make_user("bob")
    reserve(sale_id=sale.pk, order_id=501, user_id=ada.pk)
    join_waiting(sale_id=sale.pk, order_id=502, user_id=bob.pk, joined_at_ms=1)

    change_stock(sale_id=sale.pk, stock=2)

    assert held_order_ids(sale_id=sale.pk, user_id=bob.pk, limit=1) == [502]


# --- giving: one who may have none drops out -----------------------------------------------------


def test_one_who_has_reached_the_limit_meanwhile_drops_out_and_the_next_gets_it(ledger):
    entries = sold_out(total=2)
    join(501, 7)
    join(502, 7)
    join(503, 8)
    give_back(entries[0])

    give_back(entries[1])

    assert ledger.hgetall(LedgerKeys(1).buyers) == {"epoch": "1", "7:1": "501", "8:1": "503"}
    assert line(ledger) == []


def test_one_whose_order_bars_another_drops_out_and_the_next_gets_it(ledger):
    entries = sold_out(total=2, limit=2, rebuy=0)
    join(501, entries[0].user_id)
    join(502, 8)

    give_back(entries[0], had_order=True)

    assert held_order_ids(sale_id=1, user_id=entries[0].user_id, limit=2) == []
    assert held_order_ids(sale_id=1, user_id=8, limit=2) == [502]
    assert line(ledger) == []


def test_one_whose_order_is_over_gets_the_unit_again_where_one_may_buy_again(ledger):
    entries = sold_out(total=2, limit=2, rebuy=1)
    join(501, entries[0].user_id)
    join(502, 8)

    give_back(entries[0], had_order=True)

    assert held_order_ids(sale_id=1, user_id=entries[0].user_id, limit=2) == [501]
    assert line(ledger) == ["502:8"]


def test_where_all_drop_out_the_unit_is_on_sale(ledger):
    entries = sold_out(total=2, limit=2, rebuy=0)
    join(501, entries[0].user_id)

    give_back(entries[0], had_order=True)

    assert line(ledger) == []
    assert snapshot(sale_id=1).remaining == 1
    reserve(sale_id=1, order_id=601, user_id=20)


def test_junk_in_the_line_drops_out_and_the_next_gets_the_unit(ledger):
    [entry] = sold_out()
    ledger.zadd(LedgerKeys(1).waiting, {"junk": 1, "12:x": 2, "": 3, "1:2:3": 4})
    ledger.zadd(LedgerKeys(1).waiting, {"501:7": 5})

    give_back(entry)

    assert line(ledger) == []
    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]


# --- giving: somebody reserves -------------------------------------------------------------------


def test_a_newcomer_does_not_get_the_unit_that_another_waits_for(ledger):
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger)

    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=601, user_id=20)

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]
    assert [entry.order_id for entry in all_pending(sale_id=1)] == [101, 501]
    assert line(ledger) == []


def test_control_without_that_look_the_newcomer_takes_it(ledger, script_without, monkeypatch):
    giving = "if free_units(sale) > 0 and redis.call('ZCARD', KEYS[7]) > 0 then"
    minding = "if free_units(sale) <= redis.call('ZCARD', KEYS[7]) then"
    without = script_without(
        "reserve", giving, "if false then", minding, "if free_units(sale) <= 0 then"
    )
    monkeypatch.setattr(reservations, "_RESERVE", without)
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger)

    assert reserve(sale_id=1, order_id=601, user_id=20).order_id == 601

    assert line(ledger) == ["501:7"]


def test_a_newcomer_does_not_overtake_those_for_whom_one_call_gives_too_little(
    ledger, monkeypatch, script_without
):
    """A call gives a thousand units at most: here two, so that three may wait."""
    sold_out()
    for order_id in (501, 502, 503):
        join(order_id, order_id)
    ledger.hset(LedgerKeys(1).sale, "total", 4)
    few = script_without("reserve", "local MAX_UNITS_GIVEN = 1000", "local MAX_UNITS_GIVEN = 2")
    monkeypatch.setattr(reservations, "_RESERVE", few)

    with pytest.raises(SoldOut):
        reserve(sale_id=1, order_id=601, user_id=20)

    assert line(ledger) == ["503:503"]
    assert snapshot(sale_id=1).remaining == 1


def test_one_who_was_in_line_is_put_back_also_where_a_unit_is_free(ledger):
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger)
    ledger.delete(LedgerKeys(1).waiting)

    place = join_waiting(sale_id=1, order_id=501, user_id=7, joined_at_ms=1, restoring=True)

    assert place == 1
    assert line(ledger) == ["501:7"]


def test_a_newcomer_gets_what_is_left_after_those_who_wait(ledger):
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger, 2)

    assert reserve(sale_id=1, order_id=601, user_id=20).kick_due is False  # the first buyer's

    held = ledger.hgetall(LedgerKeys(1).buyers)
    assert held == {"epoch": "1", "1:1": "101", "7:1": "501", "20:1": "601"}


def test_a_newcomer_gets_the_unit_of_one_who_drops_out(ledger):
    [entry] = sold_out(limit=2, rebuy=0)
    join(501, entry.user_id)
    ledger.hset(LedgerKeys(1).barred, entry.user_id, 99)
    free_units_without_giving(ledger)

    assert reserve(sale_id=1, order_id=601, user_id=20).order_id == 601

    assert line(ledger) == []


def test_one_who_waits_and_buys_under_another_id_is_told_of_the_unit_that_came(ledger):
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger, 2)

    with pytest.raises(AlreadyOrdered) as refused:
        reserve(sale_id=1, order_id=502, user_id=7)

    assert refused.value.order_id == 501
    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]
    assert snapshot(sale_id=1).remaining == 1


@pytest.mark.parametrize("limit", [1, 2])
def test_one_who_waits_and_buys_under_the_same_id_has_the_unit_and_leaves_the_line(ledger, limit):
    sold_out(limit=limit)
    join(501, 7)
    free_units_without_giving(ledger, 2)

    assert reserve(sale_id=1, order_id=501, user_id=7).order_id == 501

    assert held_order_ids(sale_id=1, user_id=7, limit=limit) == [501]
    assert line(ledger) == []
    assert snapshot(sale_id=1).remaining == 1


def test_one_who_buys_out_of_the_midst_of_a_long_line_leaves_it(ledger):
    """Of a very long line only so many are served before one who buys under the waiting id."""
    sold_out()
    others = range(1_001, 2_001)
    ledger.zadd(LedgerKeys(1).waiting, {f"{order_id}:{order_id}": 1 for order_id in others})
    join(5_001, 7)
    free_units_without_giving(ledger, 1_500)

    assert reserve(sale_id=1, order_id=5_001, user_id=7).order_id == 5_001

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [5_001]
    assert line(ledger) == []


@pytest.mark.parametrize("closed", CLOSED)
def test_a_newcomer_to_a_closed_sale_gives_nobody_anything(ledger, dump, closed):
    sold_out()
    join(501, 7)
    free_units_without_giving(ledger)
    ledger.hset(LedgerKeys(1).sale, mapping=closed)
    before = dump()

    with pytest.raises(reservations.ReservationRefused):
        reserve(sale_id=1, order_id=601, user_id=20)

    assert dump() == before


# --- what comes of it ----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_turn_that_came_becomes_an_order_under_the_id_that_waited():
    sale, ada, bob = make_loaded_sale(stock=1), make_user("ada"), make_user("bob")
    entry = reserve_entry(sale_id=sale.pk, order_id=501, user_id=ada.pk)
    join_waiting(sale_id=sale.pk, order_id=502, user_id=bob.pk, joined_at_ms=1)
    release(sale_id=sale.pk, releases=[Release(entry, "inactive_buyer")])

    fulfill_sale(sale_id=sale.pk)

    order = sale.orders.get()
    assert (order.pk, order.user, order.status) == (502, bob, "unpaid")
    assert all_pending(sale_id=sale.pk) == []


def test_two_sales_have_two_lines():
    [entry] = sold_out()
    open_ledger(11, total=0)
    join(501, 7)
    join_waiting(sale_id=11, order_id=502, user_id=7, joined_at_ms=1)

    give_back(entry)

    assert waiting_position(sale_id=1, order_id=501, user_id=7) is None
    assert waiting_position(sale_id=11, order_id=502, user_id=7) == 1


def test_a_confirmed_order_of_one_who_waited_keeps_its_unit():
    [entry] = sold_out()
    join(501, 7)
    give_back(entry)

    confirm(sale_id=1, entries=all_pending(sale_id=1))

    assert held_order_ids(sale_id=1, user_id=7, limit=1) == [501]
    with pytest.raises(NoLongerWaiting):
        join(501, 7)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: join(501, 7),
        lambda: leave_waiting(sale_id=1, order_id=501, user_id=7),
        lambda: waiting_position(sale_id=1, order_id=501, user_id=7),
        lambda: waiting_order_ids(sale_id=1),
    ],
)
def test_a_redis_that_is_gone_is_unavailable(redis_gone, ask):
    with redis_gone(), pytest.raises(LedgerUnavailable):
        ask()
