"""Order ids: unique, increasing, 63 bits, whatever happens to the clock and to the key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.utils import timezone
from redis import Redis

from orders.placing.order_ids import EPOCH, SEQUENCE_BITS, mint_order_ids, minted_at
from tests.support.orders import at_once
from vouchers.inventory.keys import LedgerUnavailable

KEY = "seckill:order-ids"


def now_s() -> int:
    return int((timezone.now() - EPOCH).total_seconds())


def test_ten_thousand_ids_in_batches_are_unique_and_increasing() -> None:
    ids = [order_id for size in [1, 9, 90, 900, 9_000] for order_id in mint_order_ids(count=size)]
    assert len(set(ids)) == 10_000
    assert ids == sorted(ids)


def test_an_id_has_at_most_63_bits_and_is_positive() -> None:
    (order_id,) = mint_order_ids(count=1)
    assert 2**32 < order_id < 2**63


def test_an_id_tells_the_second_in_which_it_was_minted() -> None:
    before = now_s()
    (order_id,) = mint_order_ids(count=1)
    assert before - 1 <= (minted_at(order_id) - EPOCH).total_seconds() <= now_s() + 1


def test_ids_stay_increasing_when_the_daily_sequence_starts_again(ledger: Redis) -> None:
    yesterday_s = now_s() - 86_400
    sequence = 5_000_000
    ledger.hset(
        KEY,
        mapping={"seconds": yesterday_s, "day": yesterday_s // 86_400, "sequence": sequence},
    )
    (order_id,) = mint_order_ids(count=1)
    assert order_id & (2**SEQUENCE_BITS - 1) == 1
    assert order_id > (yesterday_s << SEQUENCE_BITS | sequence)


def test_ids_go_on_increasing_after_the_key_was_lost(ledger: Redis) -> None:
    before = mint_order_ids(count=100)
    ledger.flushdb()
    after = mint_order_ids(count=100)
    assert not set(before) & set(after), "an id was given out twice"
    assert min(after) > max(before)


def test_ids_go_on_increasing_after_the_clock_was_put_back(ledger: Redis) -> None:
    ahead_s = now_s() + 100_000
    ledger.hset(KEY, mapping={"seconds": ahead_s, "day": ahead_s // 86_400, "sequence": 41})
    assert mint_order_ids(count=2) == [ahead_s << SEQUENCE_BITS | 42, ahead_s << SEQUENCE_BITS | 43]


def test_threads_that_mint_at_once_get_different_ids() -> None:
    def mint() -> list[int]:
        return [order_id for _ in range(25) for order_id in mint_order_ids(count=20)]

    runs = at_once(*[mint] * 8)
    assert all(run == sorted(run) for run in runs)
    assert len({order_id for run in runs for order_id in run}) == 8 * 25 * 20


def test_a_day_without_ids_left_is_refused_and_changes_nothing(ledger: Redis) -> None:
    full = {"seconds": now_s(), "day": now_s() // 86_400, "sequence": 2**32 - 3}
    ledger.hset(KEY, mapping=full)
    assert len(mint_order_ids(count=2)) == 2
    before = ledger.hgetall(KEY)
    with pytest.raises(LedgerUnavailable):
        mint_order_ids(count=1)
    assert ledger.hgetall(KEY) == before


def test_a_key_of_a_wrong_type_heals_by_itself(ledger: Redis) -> None:
    ledger.set(KEY, "written by hand")
    assert len(mint_order_ids(count=3)) == 3


def test_without_redis_it_says_so(lose_ledger: Callable[[], None]) -> None:
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        mint_order_ids(count=1)
