"""The receipt cache: what a look-up finds, how long copies are served, and changing rows."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from tests.fixtures.site import RedisGone
from tests.fixtures.vouchers import Dump
from tests.support.sales import all_pending, open_ledger, redis_now_ms, reserve
from vouchers.inventory.keys import LedgerKeys, send
from vouchers.inventory.receipt_cache import (
    CHANGING_MS,
    ROTATION_MS,
    ReceiptLookup,
    cache_row,
    invalidate_rows,
    look_up_receipt_call,
)
from vouchers.inventory.reservations import confirm

ROW = "7:1:unpaid::100:1:2"
OTHER = "7:1:refused:sold_out:100:1:"
COPIES = LedgerKeys(1).copies
CHANGING = LedgerKeys(1).changing
SHORT_TURN_MS = 500


def look_up(*, order_id: int = 501, user_id: int = 7) -> ReceiptLookup:
    return send(look_up_receipt_call(sale_id=1, order_id=order_id, user_id=user_id))


def read_ttls(ledger: Any) -> dict[str, int]:
    return {key: ledger.pttl(key) for key in ledger.scan_iter()}


def test_pending_order_has_queue_position_for_any_unit() -> None:
    open_ledger(1, limit=3)
    for order_id, user_id in ((501, 7), (502, 8), (503, 7)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    assert look_up() == ReceiptLookup(queue_position=1)
    assert look_up(order_id=503) == ReceiptLookup(queue_position=3)


@pytest.mark.parametrize(("order_id", "user_id"), [(501, 8), (502, 7), (9, 9)])
def test_unknown_or_foreign_order_finds_nothing(order_id: int, user_id: int) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    assert look_up(order_id=order_id, user_id=user_id) == ReceiptLookup()


def test_lookup_without_ledger_finds_nothing() -> None:
    assert look_up() == ReceiptLookup()


def test_confirm_caches_row() -> None:
    open_ledger(1)
    for order_id, user_id in ((501, 7), (502, 8)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    confirm(sale_id=1, entries=all_pending(sale_id=1), rows={501: ROW})

    assert look_up() == ReceiptLookup(row=ROW)
    assert look_up(order_id=502, user_id=8) == ReceiptLookup()


def test_repeated_confirm_changes_nothing(ledger: Any, dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    entries = all_pending(sale_id=1)
    confirm(sale_id=1, entries=entries, rows={501: ROW})
    before, ttls = dump(), read_ttls(ledger)

    confirm(sale_id=1, entries=entries, rows={501: ROW})

    assert dump() == before
    assert read_ttls(ledger).keys() == ttls.keys()
    assert all(left <= ttls[key] for key, left in read_ttls(ledger).items())


# --- how long a copy is served --------------------------------------------------------------------


def test_hash_of_copies_expires_when_its_next_turn_starts(ledger: Any) -> None:
    before_ms = redis_now_ms()
    cache_row(sale_id=1, order_id=501, row=ROW)
    (key,) = ledger.keys("*")
    left_ms, after_ms = ledger.pttl(key), redis_now_ms()

    turns = before_ms // ROTATION_MS, after_ms // ROTATION_MS  # mostly the same
    turn = next(it for it in turns if COPIES[it % 2] == key)
    ends_at_ms = (turn + 2) * ROTATION_MS
    assert ends_at_ms - after_ms <= left_ms <= ends_at_ms - before_ms


def test_new_copy_does_not_extend_expiry(ledger: Any) -> None:
    for key in COPIES:
        ledger.hset(key, "502", ROW)
        ledger.pexpire(key, 10_000)

    cache_row(sale_id=1, order_id=501, row=ROW)

    assert look_up() == ReceiptLookup(row=ROW)
    assert all(0 < ledger.pttl(key) <= 10_000 for key in COPIES)


def test_copy_is_not_cached_again_in_other_hash(ledger: Any) -> None:
    """A confirm that is repeated in the next turn would extend its life."""
    for key in COPIES:
        ledger.delete(*COPIES)
        ledger.hset(key, "501", ROW)

        cache_row(sale_id=1, order_id=501, row=OTHER)

        assert ledger.keys("*") == [key]
        assert look_up() == ReceiptLookup(row=ROW)


def test_copy_is_gone_after_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vouchers.inventory.receipt_cache.ROTATION_MS", SHORT_TURN_MS)
    cache_row(sale_id=1, order_id=501, row=ROW)
    kept_at_ms = redis_now_ms()

    others = count(502)  # keep both hashes in use meanwhile
    while redis_now_ms() <= kept_at_ms + 2 * SHORT_TURN_MS:
        time.sleep(0.02)
        cache_row(sale_id=1, order_id=next(others), row=ROW)

    assert look_up() == ReceiptLookup()


# --- rows that change -----------------------------------------------------------------------------


def test_changing_row_is_not_cached(ledger: Any) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    entries = all_pending(sale_id=1)
    cache_row(sale_id=1, order_id=501, row=ROW)
    cache_row(sale_id=1, order_id=503, row=ROW)

    invalidate_rows(sale_id=1, order_ids=[501, 502])
    assert look_up() == ReceiptLookup(queue_position=1)

    cache_row(sale_id=1, order_id=501, row=ROW)  # by a slow reader of the old row
    assert look_up() == ReceiptLookup(queue_position=1)

    confirm(sale_id=1, entries=entries, rows={501: ROW})  # by a worker that was stopped
    assert look_up() == ReceiptLookup()

    assert look_up(order_id=503) == ReceiptLookup(row=ROW)
    assert set(ledger.zrange(CHANGING, 0, -1)) == {"501", "502"}
    assert CHANGING_MS - 5_000 < ledger.pttl(CHANGING) <= CHANGING_MS


@pytest.mark.parametrize("key", COPIES)
def test_invalidation_drops_copy_from_either_hash(ledger: Any, key: str) -> None:
    ledger.hset(key, "501", ROW)
    assert look_up() == ReceiptLookup(row=ROW)

    invalidate_rows(sale_id=1, order_ids=[501])

    assert look_up() == ReceiptLookup()


def test_old_marks_are_removed_by_next_invalidation(ledger: Any) -> None:
    now_ms = redis_now_ms()
    ledger.zadd(CHANGING, {"501": now_ms - CHANGING_MS - 1, "502": now_ms - CHANGING_MS + 30_000})

    invalidate_rows(sale_id=1, order_ids=[503])

    assert ledger.zrange(CHANGING, 0, -1) == ["502", "503"]


def test_repeated_invalidation_restarts_its_time(ledger: Any) -> None:
    ledger.zadd(CHANGING, {"501": redis_now_ms() - CHANGING_MS + 1_000})
    before_ms = redis_now_ms()

    invalidate_rows(sale_id=1, order_ids=[501])

    assert ledger.zscore(CHANGING, "501") >= before_ms


def test_thousands_of_rows_are_invalidated_in_one_call(ledger: Any) -> None:
    """More than Lua's ``unpack`` takes, which is some 8,000."""
    order_ids = range(1, 9_002)
    for key in COPIES:
        ledger.hset(key, mapping={str(order_id): ROW for order_id in order_ids})

    invalidate_rows(sale_id=1, order_ids=order_ids[:-1])

    assert ledger.zcard(CHANGING) == 9_000
    assert [ledger.hkeys(key) for key in COPIES] == [["9001"]] * 2


# --- keys of a wrong type -------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [*COPIES, CHANGING])
def test_key_of_wrong_type_is_made_again(ledger: Any, broken: str) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    ledger.set(broken, "junk")

    confirm(sale_id=1, entries=all_pending(sale_id=1), rows={501: ROW})
    cache_row(sale_id=1, order_id=501, row=ROW)

    assert all_pending(sale_id=1) == []
    assert look_up() == ReceiptLookup(row=ROW)


@pytest.mark.parametrize("broken", [*COPIES, CHANGING])
def test_invalidation_repairs_key_of_wrong_type(ledger: Any, broken: str) -> None:
    for key in COPIES:
        ledger.hset(key, "501", ROW)
    ledger.delete(broken)
    ledger.set(broken, "junk")

    invalidate_rows(sale_id=1, order_ids=[501])

    assert look_up() == ReceiptLookup()
    assert ledger.zrange(CHANGING, 0, -1) == ["501"]


# --- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("order_ids", "trips"), [([], 0), ([501], 1), ([501, 502, 503], 1)])
def test_invalidation_uses_at_most_one_round_trip(
    order_ids: list[int], trips: int, ledger_trips: list[int]
) -> None:
    invalidate_rows(sale_id=1, order_ids=[1])  # make the script known to Redis
    ledger_trips.clear()

    invalidate_rows(sale_id=1, order_ids=order_ids)

    assert len(ledger_trips) == trips


def test_invalidation_without_redis_only_logs(
    redis_gone: RedisGone, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_gone():
        invalidate_rows(sale_id=1, order_ids=[501])

    assert "may serve old receipts for a while" in caplog.text


def test_lookup_writes_nothing(dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    look_up()

    assert dump() == before
