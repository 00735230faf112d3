"""Where one order stands, at one look: by the contracts above the scripts, on a real Redis."""

from __future__ import annotations

import time
from itertools import count

import pytest
from redis import Redis

from tests.support.sales import all_pending, open_ledger, redis_now_ms
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.receipt_cache import (
    CHANGING_MS,
    ROTATION_MS,
    ReceiptLookup,
    cache_row,
    invalidate_rows,
    look_up_receipt,
)
from vouchers.inventory.reservations import confirm, reserve

ROW = "7:1:unpaid::100:1:2"
OTHER = "7:1:refused:sold_out:100:1:"
COPIES = LedgerKeys(1).copies
CHANGING = LedgerKeys(1).changing
SHORT_TURN_MS = 500


def look(*, order_id: int = 501, user_id: int = 7) -> ReceiptLookup:
    return look_up_receipt(sale_id=1, order_id=order_id, user_id=user_id)


def lives(ledger: Redis) -> dict[str, int]:
    return {key: ledger.pttl(key) for key in ledger.scan_iter()}


def test_an_order_that_waits_has_its_place_also_where_it_is_not_the_first_unit_of_its_buyer():
    open_ledger(1, limit=3)
    for order_id, user_id in ((501, 7), (502, 8), (503, 7)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    assert look() == ReceiptLookup(queue_position=1)
    assert look(order_id=503) == ReceiptLookup(queue_position=3)


@pytest.mark.parametrize(("order_id", "user_id"), [(501, 8), (502, 7), (9, 9)])
def test_of_anybody_elses_order_and_of_none_it_knows_nothing(order_id: int, user_id: int):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    assert look(order_id=order_id, user_id=user_id) == ReceiptLookup()


def test_where_there_is_no_ledger_it_knows_nothing():
    assert look() == ReceiptLookup()


def test_the_copy_of_a_row_is_kept_with_its_confirmation():
    open_ledger(1)
    for order_id, user_id in ((501, 7), (502, 8)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    confirm(sale_id=1, entries=all_pending(sale_id=1), rows={501: ROW})

    assert look() == ReceiptLookup(row=ROW)
    assert look(order_id=502, user_id=8) == ReceiptLookup()


def test_who_has_read_a_row_keeps_its_copy_for_the_next():
    cache_row(sale_id=1, order_id=501, row=ROW)

    assert look() == ReceiptLookup(row=ROW)


def test_a_copy_that_is_there_is_not_replaced():
    cache_row(sale_id=1, order_id=501, row=ROW)
    cache_row(sale_id=1, order_id=501, row=OTHER)

    assert look() == ReceiptLookup(row=ROW)


def test_a_confirmation_that_is_sent_again_changes_nothing(ledger, dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    entries = all_pending(sale_id=1)
    confirm(sale_id=1, entries=entries, rows={501: ROW})
    before, life = dump(), lives(ledger)

    confirm(sale_id=1, entries=entries, rows={501: ROW})

    assert dump() == before
    assert lives(ledger).keys() == life.keys()
    assert all(left <= life[key] for key, left in lives(ledger).items())


# --- How long a copy is told ----------------------------------------------------------------------


def test_a_hash_of_copies_ends_when_its_next_turn_begins(ledger):
    before_ms = redis_now_ms()
    cache_row(sale_id=1, order_id=501, row=ROW)
    (key,) = ledger.keys("*")
    left_ms, after_ms = ledger.pttl(key), redis_now_ms()

    turns = before_ms // ROTATION_MS, after_ms // ROTATION_MS  # mostly the same
    turn = next(it for it in turns if COPIES[it % 2] == key)
    ends_at_ms = (turn + 2) * ROTATION_MS
    assert ends_at_ms - after_ms <= left_ms <= ends_at_ms - before_ms


def test_what_ends_soon_gets_no_longer_life_by_a_new_copy(ledger):
    for key in COPIES:
        ledger.hset(key, "502", ROW)
        ledger.pexpire(key, 5_000)

    cache_row(sale_id=1, order_id=501, row=ROW)

    assert look() == ReceiptLookup(row=ROW)
    assert all(0 < ledger.pttl(key) <= 5_000 for key in COPIES)


def test_a_copy_that_is_there_is_not_kept_again_in_the_other_hash(ledger):
    """A confirmation that is sent again in the next turn would let it live on."""
    for key in COPIES:
        ledger.delete(*COPIES)
        ledger.hset(key, "501", ROW)

        cache_row(sale_id=1, order_id=501, row=OTHER)

        assert ledger.keys("*") == [key]


def test_the_copy_of_two_turns_ago_is_told_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("vouchers.inventory.receipt_cache.ROTATION_MS", SHORT_TURN_MS)
    cache_row(sale_id=1, order_id=501, row=ROW)
    kept_at_ms = redis_now_ms()
    assert look() == ReceiptLookup(row=ROW)

    others = count(502)  # for whom both hashes are in use all the while
    while redis_now_ms() <= kept_at_ms + 2 * SHORT_TURN_MS:
        time.sleep(0.02)
        cache_row(sale_id=1, order_id=next(others), row=ROW)

    assert look() == ReceiptLookup()


# --- An order that changes ------------------------------------------------------------------------


def test_from_before_a_change_until_long_after_it_no_copy_is_kept(ledger):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    entries = all_pending(sale_id=1)
    cache_row(sale_id=1, order_id=501, row=ROW)
    cache_row(sale_id=1, order_id=503, row=ROW)

    invalidate_rows(sale_id=1, order_ids=[501, 502])
    assert look() == ReceiptLookup(queue_position=1)

    cache_row(sale_id=1, order_id=501, row=ROW)  # read before the change, and late
    assert look() == ReceiptLookup(queue_position=1)

    confirm(sale_id=1, entries=entries, rows={501: ROW})  # a worker that stood still since
    assert look() == ReceiptLookup()

    assert look(order_id=503) == ReceiptLookup(row=ROW)
    assert set(ledger.zrange(CHANGING, 0, -1)) == {"501", "502"}
    assert CHANGING_MS - 5_000 < ledger.pttl(CHANGING) <= CHANGING_MS


@pytest.mark.parametrize("key", COPIES)
def test_a_change_takes_the_copy_out_of_whichever_hash_has_it(ledger, key: str):
    ledger.hset(key, "501", ROW)
    assert look() == ReceiptLookup(row=ROW)

    invalidate_rows(sale_id=1, order_ids=[501])

    assert look() == ReceiptLookup()


def test_what_was_noted_long_ago_is_forgotten_with_the_next_change(ledger):
    now_ms = redis_now_ms()
    ledger.zadd(CHANGING, {"501": now_ms - CHANGING_MS - 1, "502": now_ms - CHANGING_MS + 30_000})

    invalidate_rows(sale_id=1, order_ids=[503])

    assert ledger.zrange(CHANGING, 0, -1) == ["502", "503"]


def test_who_changes_again_is_noted_from_then_on(ledger):
    ledger.zadd(CHANGING, {"501": redis_now_ms() - CHANGING_MS + 1_000})
    before_ms = redis_now_ms()

    invalidate_rows(sale_id=1, order_ids=[501])

    assert ledger.zscore(CHANGING, "501") >= before_ms


def test_thousands_of_orders_change_in_one_call(ledger):
    """More than ``unpack`` in Redis takes, which is some 8,000."""
    order_ids = range(1, 9_002)
    for key in COPIES:
        ledger.hset(key, mapping={str(order_id): ROW for order_id in order_ids})

    invalidate_rows(sale_id=1, order_ids=order_ids[:-1])

    assert ledger.zcard(CHANGING) == 9_000
    assert [ledger.hkeys(key) for key in COPIES] == [["9001"]] * 2


# --- Keys of a wrong type -------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [*COPIES, CHANGING])
def test_with_a_key_of_a_wrong_type_nothing_is_kept_and_entries_are_confirmed(ledger, broken: str):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.set(broken, "junk")

    confirm(sale_id=1, entries=all_pending(sale_id=1), rows={501: ROW})
    cache_row(sale_id=1, order_id=501, row=ROW)

    assert all_pending(sale_id=1) == []
    assert look() == ReceiptLookup()


@pytest.mark.parametrize("broken", [*COPIES, CHANGING])
def test_a_change_is_noted_whatever_type_a_key_has(ledger, broken: str):
    for key in COPIES:
        ledger.hset(key, "501", ROW)
    ledger.delete(broken)
    ledger.set(broken, "junk")

    invalidate_rows(sale_id=1, order_ids=[501])

    assert look() == ReceiptLookup()
    assert ledger.zrange(CHANGING, 0, -1) == ["501"]


# --- Round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("order_ids", "trips"), [([], 0), ([501], 1), ([501, 502, 503], 1)])
def test_a_change_of_however_many_orders_is_one_round_trip(
    order_ids: list[int], trips: int, ledger_trips: list[int]
):
    invalidate_rows(sale_id=1, order_ids=[1])  # so that Redis knows the script
    ledger_trips.clear()

    invalidate_rows(sale_id=1, order_ids=order_ids)

    assert len(ledger_trips) == trips


def test_with_redis_away_a_look_says_so_and_a_change_goes_on(redis_gone, caplog):
    with redis_gone():
        with pytest.raises(LedgerUnavailable):
            look()
        with pytest.raises(LedgerUnavailable):
            cache_row(sale_id=1, order_id=501, row=ROW)

        invalidate_rows(sale_id=1, order_ids=[501])

    assert "may serve old receipts for a while" in caplog.text


def test_looking_writes_nothing(dump):
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    look()

    assert dump() == before
