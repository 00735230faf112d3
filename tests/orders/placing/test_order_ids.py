"""Order ids: unique, increasing, 63 bits, whatever happens to the clock and to the key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from orders.placing.order_ids import EPOCH, SEQUENCE_BITS, mint_order_ids, minted_ms
from tests.support.orders import at_once
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.purchases import (
    BLOCK_MARK,
    BLOCK_MARK_AT,
    BLOCK_SIZE,
    BLOCKS_A_SECOND,
    is_in_block,
    purchase_of,
)

KEY, BLOCKS_KEY = "seckill:order-ids", "seckill:order-blocks"
MARK = BLOCK_MARK << BLOCK_MARK_AT
"""The first sequence of a block: single ids stay below."""


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
    minted_s = minted_ms(order_id) / 1000 - EPOCH.timestamp()
    assert before - 1 <= minted_s <= now_s() + 1


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


def test_exhausted_sequence_goes_on_in_the_next_second(ledger: Any) -> None:
    ahead_s = now_s() + 100_000
    ledger.hset(KEY, mapping={"seconds": ahead_s, "day": ahead_s // 86_400, "sequence": MARK - 3})

    ids = [*mint_order_ids(count=2), *mint_order_ids(count=1), *mint_order_ids(count=1)]

    last, first = ahead_s << SEQUENCE_BITS, ahead_s + 1 << SEQUENCE_BITS
    assert ids == [last | MARK - 2, last | MARK - 1, first | 1, first | 2]


# --- Blocks --------------------------------------------------------------------------------------


def test_blocks_do_not_overlap_and_say_when_they_were_minted() -> None:
    before = now_s()
    blocks = [*mint_order_ids(count=3, blocks=True), *mint_order_ids(count=2, blocks=True)]
    assert all(after - block >= BLOCK_SIZE for block, after in pairwise(blocks))
    assert all(purchase_of(block + BLOCK_SIZE - 1) == block for block in blocks)
    assert before - 1 <= minted_ms(blocks[0]) / 1000 - EPOCH.timestamp() <= now_s() + 1
    assert all(block < 2**63 for block in blocks)


def test_single_id_is_never_in_a_block(ledger: Any) -> None:
    """Neither the highest of a day, nor the first after the key was lost."""
    ahead_s = now_s() + 100_000
    full = {"seconds": ahead_s, "day": ahead_s // 86_400, "sequence": MARK - 12}
    ledger.hset(KEY, mapping=full)
    ids = [order_id for _ in range(12) for order_id in mint_order_ids(count=1)]
    ledger.delete(KEY)
    assert not any(map(is_in_block, [*ids, *mint_order_ids(count=100)]))
    assert MARK > 999_999 * 4_000, "the last microsecond of a second"


def test_exhausted_blocks_go_on_in_the_next_second(ledger: Any) -> None:
    ahead_s = now_s() + 100_000
    full = {"seconds": ahead_s, "day": ahead_s // 86_400, "sequence": BLOCKS_A_SECOND - 2}
    ledger.hset(BLOCKS_KEY, mapping=full)
    last, first = (mint_order_ids(count=1, blocks=True)[0] for _ in range(2))
    assert (last >> SEQUENCE_BITS, first >> SEQUENCE_BITS) == (ahead_s, ahead_s + 1)
    assert is_in_block(last)
    assert is_in_block(first)
    assert not is_in_block(last + BLOCK_SIZE), "one more would be an id of the next second"


def test_blocks_after_lost_key_are_new(ledger: Any) -> None:
    before = mint_order_ids(count=100, blocks=True)
    ledger.flushdb()
    after = mint_order_ids(count=100, blocks=True)
    assert min(after) > max(before)


def test_key_of_wrong_type_is_replaced(ledger: Any) -> None:
    ledger.set(KEY, "written by hand")
    assert len(mint_order_ids(count=3)) == 3


def test_minting_without_redis_is_unavailable(lose_ledger: Callable[[], None]) -> None:
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        mint_order_ids(count=1)
