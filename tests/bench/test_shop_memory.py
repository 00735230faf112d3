"""The benchmark ``shop``: the memory that the ledgers of old sales take, and give back."""

from __future__ import annotations

import pytest

from bench.shop.memory import memory_of_old_sales
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.usefixtures("row_locks")
def test_memory_comes_back_and_no_row_stays() -> None:
    empty, full, left, _ = memory_of_old_sales(sales=3, buyers=2_000)
    assert full - empty > 3 * 2_000 * 60
    assert left - empty < (full - empty) / 4
    assert not SeckillVoucher.objects.exists()
