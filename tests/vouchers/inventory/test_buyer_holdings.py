"""What one buyer holds in the ledger, on a real Redis."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.vouchers import Dump
from tests.support.sales import all_pending, open_ledger, redis_now_ms
from vouchers.inventory.buyer_holdings import HeldUnit, read_buyer_holdings
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.reservations import confirm, reserve

ABOVE_53_BITS = 9_007_199_254_740_993


def queue_positions(*, user_id: int) -> dict[int, int | None]:
    found = read_buyer_holdings(sale_id=1, user_id=user_id)
    return {unit.order_id: unit.queue_position for unit in found.units}


def test_buyer_without_unit_has_none_even_without_ledger() -> None:
    before_ms = redis_now_ms()

    found = read_buyer_holdings(sale_id=1, user_id=7)

    assert found.units == []
    assert before_ms <= found.now_ms <= redis_now_ms()


def test_queue_position_counts_entries_of_whole_sale() -> None:
    open_ledger(1, limit=2)
    for order_id, user_id in ((501, 7), (502, 8), (503, 7)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    assert read_buyer_holdings(sale_id=1, user_id=7).units == [
        HeldUnit(501, 7, 1, queue_position=1),
        HeldUnit(503, 7, 2, queue_position=3),
    ]


def test_queue_position_falls_and_ends_once_row_is_written() -> None:
    open_ledger(1)
    for order_id, user_id in ((501, 7), (502, 8), (503, 9)):
        reserve(sale_id=1, order_id=order_id, user_id=user_id)

    confirm(sale_id=1, entries=all_pending(sale_id=1)[:2])

    assert queue_positions(user_id=9) == {503: 1}
    assert queue_positions(user_id=7) == {501: None}


def test_largest_unit_and_ids_above_53_bits_are_exact(ledger: Any) -> None:
    keys = open_ledger(1)
    ledger.hset(keys.buyers, f"{ABOVE_53_BITS}:20", ABOVE_53_BITS + 2)
    ledger.zadd(keys.pending, {f"{ABOVE_53_BITS + 2}:{ABOVE_53_BITS}:20": 1})

    (unit,) = read_buyer_holdings(sale_id=1, user_id=ABOVE_53_BITS).units

    assert unit == HeldUnit(ABOVE_53_BITS + 2, ABOVE_53_BITS, 20, queue_position=1)


def test_reading_holdings_writes_nothing(dump: Dump) -> None:
    open_ledger(1)
    reserve(sale_id=1, order_id=501, user_id=7)
    before = dump()

    read_buyer_holdings(sale_id=1, user_id=7)

    assert dump() == before


def test_buyers_of_wrong_type_raise_ledger_unavailable(ledger: Any) -> None:
    ledger.set(LedgerKeys(1).buyers, "of a wrong type")

    with pytest.raises(LedgerUnavailable):
        read_buyer_holdings(sale_id=1, user_id=7)
