"""Order ids: unique, increasing, 63 bits, whatever happens to the clock and to the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from orders.placing.order_ids import EPOCH, SEQUENCE_BITS, mint_order_ids, minted_at
from tests.support.orders import at_once
from vouchers.inventory.keys import LedgerUnavailable

KEY = "seckill:order-ids"


def now_s() -> int:
    return int((timezone.now() - EPOCH).total_seconds())


def test_ids_of_many_batches_are_unique_and_increasing() -> None:
    ids = [order_id for size in [1, 9, 90, 900, 9_000] for order_id in mint_order_ids(count=size)]
    assert len(set(ids)) == 10_000
    assert ids == sorted(ids)


def test_id_is_positive_with_at_most_63_bits() -> None:
    (order_id,) = mint_order_ids(count=1)
    assert 2**32 < order_id < 2**63


def test_id_contains_second_of_minting() -> None:
    before = now_s()
    (order_id,) = mint_order_ids(count=1)
    assert before - 1 <= (minted_at(order_id) - EPOCH).total_seconds() <= now_s() + 1


def test_ids_increase_when_daily_sequence_restarts(ledger: Any) -> None:
    yesterday_s = now_s() - 86_400
    sequence = 5_000_000
    ledger.hset(
        KEY,
        mapping={"seconds": yesterday_s, "day": yesterday_s // 86_400, "sequence": sequence},
    )
    (order_id,) = mint_order_ids(count=1)
    assert order_id & (2**SEQUENCE_BITS - 1) == 1
    assert order_id > (yesterday_s << SEQUENCE_BITS | sequence)


def test_ids_increase_after_key_is_lost(ledger: Any) -> None:
    before = mint_order_ids(count=100)
    ledger.flushdb()
    after = mint_order_ids(count=100)
    assert not set(before) & set(after), "an id was given out twice"
    assert min(after) > max(before)


def test_ids_increase_after_clock_is_put_back(ledger: Any) -> None:
    ahead_s = now_s() + 100_000
    ledger.hset(KEY, mapping={"seconds": ahead_s, "day": ahead_s // 86_400, "sequence": 41})
    assert mint_order_ids(count=2) == [ahead_s << SEQUENCE_BITS | 42, ahead_s << SEQUENCE_BITS | 43]


def test_concurrent_threads_get_different_ids() -> None:
    def mint() -> list[int]:
        return [order_id for _ in range(25) for order_id in mint_order_ids(count=20)]

    runs = at_once(*[mint] * 8)
    assert all(run == sorted(run) for run in runs)
    assert len({order_id for run in runs for order_id in run}) == 8 * 25 * 20


def test_exhausted_day_is_refused_and_changes_nothing(ledger: Any) -> None:
    full = {"seconds": now_s(), "day": now_s() // 86_400, "sequence": 2**32 - 3}
    ledger.hset(KEY, mapping=full)
    assert len(mint_order_ids(count=2)) == 2
    before = ledger.hgetall(KEY)
    with pytest.raises(LedgerUnavailable):
        mint_order_ids(count=1)
    assert ledger.hgetall(KEY) == before


def test_key_of_wrong_type_is_replaced(ledger: Any) -> None:
    ledger.set(KEY, "written by hand")
    assert len(mint_order_ids(count=3)) == 3


def test_minting_without_redis_is_unavailable(lose_ledger: Callable[[], None]) -> None:
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        mint_order_ids(count=1)
