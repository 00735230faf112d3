"""The batch journal on a real Redis."""

from __future__ import annotations

from tests.support.sales import open_ledger, reserve_entry
from vouchers.inventory.batch_journal import (
    clear_batch,
    count_attempt,
    read_suspects,
    record_batch,
    undo_attempt,
)
from vouchers.inventory.reservations import confirm


def test_batch_numbers_rise() -> None:
    open_ledger(1)

    assert [record_batch(sale_id=1, entries=[]) for _ in range(3)] == [1, 2, 3]


def test_recorded_batch_is_suspect_until_cleared_or_confirmed() -> None:
    open_ledger(1)
    entries = [reserve_entry(sale_id=1, order_id=500 + n, user_id=n) for n in (1, 2)]

    record_batch(sale_id=1, entries=entries)
    assert read_suspects(sale_id=1) == {501, 502}
    clear_batch(sale_id=1)
    assert read_suspects(sale_id=1) == set()

    record_batch(sale_id=1, entries=entries)
    confirm(sale_id=1, entries=entries)
    assert read_suspects(sale_id=1) == set()


def test_attempts_are_counted_per_order_and_make_suspects() -> None:
    assert [count_attempt(sale_id=1, order_id=501) for _ in range(3)] == [1, 2, 3]
    assert count_attempt(sale_id=1, order_id=502) == 1

    undo_attempt(sale_id=1, order_id=501)
    undo_attempt(sale_id=1, order_id=502)

    assert read_suspects(sale_id=1) == {501}
    assert count_attempt(sale_id=1, order_id=501) == 3
