"""A sale's figures in the ledger: reading writes nothing, writing checks what is taken."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

import pytest

from seckill_site.clock import epoch_ms
from tests.support.sales import make_sale, open_ledger, redis_now_ms, reserve_entry
from vouchers.inventory import sale_state
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded, ledger_script
from vouchers.inventory.reservations import reserve
from vouchers.inventory.sale_state import BelowTaken, LedgerTerms, snapshot, snapshots, write_terms
from vouchers.models import SaleState

CONTENTS = ("sale", "buyers", "pending", "ended", "tries", "barred", "waiting")
FIELDS = (
    *("epoch", "total", "begins_at_ms", "ends_at_ms", "limit", "paused", "rebuy"),
    "loaded_at_ms",
)
OPEN = LedgerTerms(total=5, begins_at_ms=0, ends_at_ms=2**50, limit=1, paused=False, rebuy=True)
NEW = LedgerTerms(total=9, begins_at_ms=1_000, ends_at_ms=2_000, limit=2, paused=True, rebuy=True)


# --- snapshot ------------------------------------------------------------------------------------


def test_a_snapshot_tells_everything_of_one_moment(ledger):
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


def test_a_snapshot_writes_nothing(dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    snapshots(sale_ids=[1, 2])

    assert dump() == before


def test_without_pending_entries_there_is_no_oldest():
    open_ledger(1)

    assert snapshot(sale_id=1).oldest_pending_ms is None


@pytest.mark.parametrize("name", CONTENTS)
def test_a_key_of_a_wrong_type_is_not_loaded(ledger, name):
    keys = open_ledger(1)
    ledger.delete(getattr(keys, name))
    ledger.set(getattr(keys, name), "of a wrong type")

    with pytest.raises(NotLoaded):
        snapshot(sale_id=1)


@pytest.mark.parametrize("lost", ["sale", "buyers"])
def test_a_lost_key_is_not_loaded(ledger, lost):
    keys = open_ledger(1)
    ledger.delete(getattr(keys, lost))

    with pytest.raises(NotLoaded):
        snapshot(sale_id=1)


def test_buyers_of_another_epoch_are_not_loaded(ledger):
    keys = open_ledger(1)
    ledger.hset(keys.sale, "epoch", 2)

    with pytest.raises(NotLoaded):
        snapshot(sale_id=1)


@pytest.mark.parametrize("field", FIELDS)
def test_a_lost_field_is_not_loaded(ledger, field):
    keys = open_ledger(1)
    ledger.hdel(keys.sale, field)

    with pytest.raises(NotLoaded):
        snapshot(sale_id=1)


def test_many_sales_are_one_round_trip(ledger_trips):
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


def test_no_sale_at_all_asks_redis_nothing(ledger_trips):
    assert snapshots(sale_ids=[]) == {}
    assert ledger_trips == []


def test_more_taken_than_offered_leaves_none_rather_than_less():
    open_ledger(1, total=2)
    reserve(sale_id=1, order_id=501, user_id=1)
    reserve(sale_id=1, order_id=502, user_id=2)
    write_terms(sale_id=1, terms=replace(OPEN, total=1))

    assert snapshot(sale_id=1).remaining == 0


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
def test_the_state_is_the_first_that_holds(changes, state):
    open_ledger(1, **changes)

    assert snapshot(sale_id=1).state is state


def test_a_redis_that_does_not_answer_is_unavailable_not_unloaded(redis_gone):
    with redis_gone(), pytest.raises(LedgerUnavailable):
        snapshot(sale_id=1)


# --- write_figures -------------------------------------------------------------------------------


def test_written_figures_stand_and_epoch_and_buyers_stay(ledger):
    keys = open_ledger(1, epoch=3)
    reserve(sale_id=1, order_id=501, user_id=7)

    write_terms(sale_id=1, terms=NEW)

    found = snapshot(sale_id=1)
    assert (found.terms, found.epoch, found.taken) == (NEW, 3, 1)
    assert ledger.hget(keys.buyers, "7:1") == "501"


def test_a_total_below_what_is_taken_is_refused_pending_included(dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=1)
    reserve(sale_id=1, order_id=502, user_id=2)
    before = dump()

    with pytest.raises(BelowTaken) as refused:
        write_terms(sale_id=1, terms=replace(OPEN, total=1), refuse_below_taken=True)

    assert refused.value.taken == 2
    assert dump() == before


def test_a_total_of_exactly_what_is_taken_is_written():
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=1)

    write_terms(sale_id=1, terms=replace(OPEN, total=1), refuse_below_taken=True)

    assert snapshot(sale_id=1).state is SaleState.SOLD_OUT


def test_where_the_row_has_the_last_word_a_total_below_taken_is_written():
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=1)

    write_terms(sale_id=1, terms=replace(OPEN, total=0))

    assert snapshot(sale_id=1).terms.total == 0


@pytest.mark.parametrize("lost", ["sale", "buyers"])
@pytest.mark.parametrize("wrong_type", [False, True])
def test_figures_are_never_written_into_a_ledger_that_is_not_whole(ledger, dump, lost, wrong_type):
    keys = open_ledger(1)
    ledger.delete(getattr(keys, lost))
    if wrong_type:
        ledger.set(getattr(keys, lost), "of a wrong type")
    before = dump()

    with pytest.raises(NotLoaded):
        write_terms(sale_id=1, terms=NEW)

    assert dump() == before


@pytest.mark.parametrize("name", [name for name in CONTENTS if name not in ("sale", "buyers")])
def test_figures_are_not_loaded_wherever_reserve_says_so(ledger, name):
    """What one script calls not loaded all must, or the sale is closed and never built again."""
    keys = open_ledger(1)
    ledger.set(getattr(keys, name), "of a wrong type")
    with pytest.raises(NotLoaded):
        reserve(sale_id=1, order_id=501, user_id=7)

    with pytest.raises(NotLoaded):
        write_terms(sale_id=1, terms=NEW)


@pytest.mark.parametrize(("total", "known"), [(1, True), (2, False), (0, False)])
def test_since_when_nothing_is_left_holds_as_long_as_the_total_does(ledger, total, known):
    keys = open_ledger(1, total=1)
    reserve(sale_id=1, order_id=501, user_id=7)

    write_terms(sale_id=1, terms=replace(OPEN, total=total))

    assert ledger.hexists(keys.sale, "sold_out_at_ms") is known


def test_figures_of_no_sale_make_no_key(ledger):
    with pytest.raises(NotLoaded):
        write_terms(sale_id=1, terms=NEW)

    assert not ledger.exists(LedgerKeys(1).sale)


def test_the_codes_of_the_script_are_those_of_its_wrapper():
    source = ledger_script("write_terms").source

    assert set(re.findall(r"return \{?'([A-Z_]+)'", source)) == set(sale_state.WriteCode)


# --- what two sets of figures both allow ---------------------------------------------------------

FIGURES = LedgerTerms(
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
    ],
)
def test_what_is_narrower_holds_and_what_is_wider_does_not(narrower, wider):
    narrow, wide = replace(FIGURES, **narrower), replace(FIGURES, **wider)

    assert FIGURES.narrowed_to(narrow) == narrow.narrowed_to(FIGURES) == narrow
    assert FIGURES.narrowed_to(wide) == wide.narrowed_to(FIGURES) == FIGURES


# --- moments and rows ----------------------------------------------------------------------------


def test_a_moment_is_whole_milliseconds_since_1970_in_any_time_zone():
    shanghai = dt.timezone(dt.timedelta(hours=8))

    assert epoch_ms(dt.datetime(1970, 1, 1, 8, 0, 1, 999, tzinfo=shanghai)) == 1_000
    assert epoch_ms(dt.datetime(2262, 4, 12, 0, 0, 0, 1_999, tzinfo=dt.UTC)) == 9_223_372_800_001


@pytest.mark.django_db
def test_the_figures_of_a_row_are_what_it_offers():
    sale = make_sale(stock=4, limit=2, paused=True, rebuy=False)

    found = LedgerTerms.from_sale(sale)

    window = epoch_ms(sale.begins_at), epoch_ms(sale.ends_at)
    assert found == LedgerTerms(4, *window, 2, paused=True, rebuy=False)
    assert found.script_args() == [4, *window, 2, 1, 0]
