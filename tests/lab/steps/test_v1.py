"""V1: somebody else buys between the reading and the taking."""

from __future__ import annotations

import pytest

from lab.models import LabSale
from lab.steps import STEPS
from lab.steps.step import Answer
from tests.lab.steps.meeting import at, beside, buy, elsewhere, passed

pytestmark = pytest.mark.django_db(transaction=True)


def overtaken(name: str, *, stock: int) -> tuple[int, Answer]:
    """Let buyer 2 buy while buyer 1 has read the stock; return the sale and what 1 is told."""
    sale_id = STEPS[name].open(stock)
    with at("stock read", lambda: elsewhere(lambda: buy(name, sale_id, 2))):
        return sale_id, buy(name, sale_id, 1)


@pytest.mark.parametrize("name", ["v1", "v1-as-read", "v1-any-left", "v1-for-update"])
def test_points_follow_the_statements(name: str) -> None:
    sale_id = STEPS[name].open(1)
    assert passed(lambda: buy(name, sale_id, 1)) == ["stock read", "unit taken"]


def test_without_a_guard_the_last_unit_is_sold_twice() -> None:
    sale_id, answer = overtaken("v1", stock=1)
    assert answer is Answer.BOUGHT
    assert STEPS["v1"].rows(sale_id) == [2, 1]
    assert LabSale.objects.get(pk=sale_id).stock == -1


def test_as_read_guard_refuses_despite_stock() -> None:
    sale_id, answer = overtaken("v1-as-read", stock=2)
    assert answer is Answer.SOLD_OUT
    assert STEPS["v1-as-read"].rows(sale_id) == [2]
    assert LabSale.objects.get(pk=sale_id).stock == 1


@pytest.mark.parametrize(("stock", "expected"), [(1, Answer.SOLD_OUT), (2, Answer.BOUGHT)])
def test_guard_on_any_unit_left_sells_the_stock(stock: int, expected: Answer) -> None:
    sale_id, answer = overtaken("v1-any-left", stock=stock)
    assert answer is expected
    assert len(STEPS["v1-any-left"].rows(sale_id)) == stock


def test_row_lock_makes_the_next_buyer_read_afterwards() -> None:
    name = "v1-for-update"
    sale_id = STEPS[name].open(1)
    with beside(lambda: buy(name, sale_id, 1), until="stock read") as first:
        assert buy(name, sale_id, 2) is Answer.SOLD_OUT
        assert first.result() is Answer.BOUGHT
    assert STEPS[name].rows(sale_id) == [1]
