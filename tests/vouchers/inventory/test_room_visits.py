"""Visits that Redis has and no row has yet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.vouchers import DropGuard
from tests.support.rooms import OPENED_MS, change_room, open_room, place_at
from vouchers.inventory import room_visits
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.room_visits import Visit, forget_visits, unstored_visits


def found(*, most: int = 100) -> list[Visit]:
    return sorted(unstored_visits(sale_id=1, most=most))


def test_visits_are_found_as_they_were_made() -> None:
    open_room(1)
    waiting, let_in = place_at(1, 8), place_at(1, 7)
    change_room(1, base=2)
    place_at(1, 7)

    first, second = found()

    assert second == Visit(8, OPENED_MS, waiting.given, waiting.joined_ms, 0)
    assert first[:4] == (7, OPENED_MS, let_in.given, let_in.joined_ms)
    assert first.let_in_ms >= first.joined_ms


def test_sale_without_visits_has_none() -> None:
    assert found() == []


def test_key_of_a_wrong_type_has_no_visits(ledger: Any) -> None:
    ledger.rpush(LedgerKeys(1).visits, "a mistyped command")

    assert found() == []


JUNK = {
    "x": "1000:1:2:0",
    "0": "1000:1:2:0",
    "7": "junk",
    "8": "1000:0:2:0",
    "9": "1000:1:2",
    str(2**63): "1000:1:2:0",
    "10": "1000:1:99999999999999:0",
    "١": "1000:1:2:0",
}


def test_visits_that_cannot_be_parsed_are_dropped(ledger: Any) -> None:
    ledger.hset(LedgerKeys(1).visits, mapping={**JUNK, "5": "1000:1:2:0"})

    assert found() == [Visit(5, 1000, 1, 2, 0)]
    assert ledger.hkeys(LedgerKeys(1).visits) == ["5"]


def test_large_crowd_is_read_in_parts(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_visits, "_CHUNK", 100)
    fields = {str(user_id): f"1000:{user_id}:2:0" for user_id in range(1, 2_001)}
    ledger.hset(LedgerKeys(1).visits, mapping=fields)

    assert 500 <= len(found(most=500)) < 1_000
    assert len(found(most=10_000)) == 2_000


def test_stored_visits_are_dropped_in_chunks(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_visits, "_CHUNK", 3)
    fields = {str(user_id): f"1000:{user_id}:2:0" for user_id in range(1, 11)}
    ledger.hset(LedgerKeys(1).visits, mapping=fields)

    forget_visits(sale_id=1, visits=found())
    forget_visits(sale_id=1, visits=[])

    assert ledger.exists(LedgerKeys(1).visits) == 0


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_visit_that_changed_meanwhile_stays(
    guarded: bool, ledger: Any, drop_guard: DropGuard
) -> None:
    """The comparison: without it the moment of being let in is never stored."""
    if not guarded:
        guard = "if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then"
        drop_guard(room_visits, "_FORGET", guard, "if true then")
    open_room(1)
    place_at(1, 7)
    visits = found()
    change_room(1, base=1)
    place_at(1, 7)

    forget_visits(sale_id=1, visits=visits)

    assert ledger.hexists(LedgerKeys(1).visits, "7") is guarded
