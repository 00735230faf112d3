"""What an order id says of its purchase."""

from __future__ import annotations

import pytest

from vouchers.inventory.holdings import Holding, by_purchase
from vouchers.inventory.purchases import (
    further_ids,
    ids_of_purchase,
    is_all_or_none,
    purchase_of,
)
from vouchers.models import MAX_LIMIT

BLOCK = 29_000_000 << 32 | 0b1111 << 28 | 7 * 64
SINGLE = 29_000_000 << 32 | 4_000_003


@pytest.mark.parametrize("all_or_none", [False, True])
def test_further_ids_lead_back_to_their_purchase(all_or_none: bool) -> None:
    ids = further_ids(BLOCK, quantity=MAX_LIMIT, all_or_none=all_or_none)
    assert len({BLOCK, *ids}) == MAX_LIMIT
    assert {purchase_of(it) for it in ids} == {BLOCK}
    assert {is_all_or_none(it) for it in ids} == {all_or_none}
    assert set(ids) <= set(ids_of_purchase(ids[-1]))


def test_the_two_choices_share_no_id_but_the_first() -> None:
    left, whole = (further_ids(BLOCK, quantity=20, all_or_none=it) for it in (False, True))
    assert not set(left) & set(whole)


def test_id_without_a_block_is_a_purchase_of_one() -> None:
    assert purchase_of(SINGLE) == SINGLE
    assert list(ids_of_purchase(SINGLE)) == [SINGLE]
    assert list(further_ids(SINGLE, quantity=3, all_or_none=True)) == []
    assert not is_all_or_none(SINGLE | 32)


def test_units_are_grouped_by_purchase_in_their_order() -> None:
    ids = [SINGLE, BLOCK, BLOCK + 1, BLOCK + 64, SINGLE + 1]
    units = [Holding(it, 7, 1) for it in ids]
    assert by_purchase(units) == [units[:1], units[1:3], units[3:4], units[4:]]


def test_block_does_not_cross_a_power_of_ten() -> None:
    """Else its entries of one moment, which Redis sorts as text, would not be side by side."""
    assert all(10**digits % 64 == 0 for digits in range(6, 19))
