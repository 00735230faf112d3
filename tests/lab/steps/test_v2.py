"""V2: the same buyer presses again before the first order is written."""

from __future__ import annotations

import pytest

from lab.steps import STEPS
from lab.steps.step import Answer
from tests.lab.steps.meeting import at, buy, elsewhere, passed

pytestmark = pytest.mark.django_db(transaction=True)


def test_points_follow_the_statements() -> None:
    sale_id = STEPS["v2"].open(1)
    assert passed(lambda: buy("v2", sale_id, 1)) == [
        "orders counted",
        "unit taken",
        "order written",
    ]
    assert passed(lambda: buy("v2", sale_id, 1)) == ["orders counted"]


def test_presses_that_both_count_none_both_order() -> None:
    sale_id = STEPS["v2"].open(5)
    with at("orders counted", lambda: elsewhere(lambda: buy("v2", sale_id, 1))):
        assert buy("v2", sale_id, 1) is Answer.BOUGHT
    assert STEPS["v2"].rows(sale_id) == [1, 1]


def test_last_unit_is_sold_once() -> None:
    sale_id = STEPS["v2"].open(1)
    with at("orders counted", lambda: elsewhere(lambda: buy("v2", sale_id, 2))):
        assert buy("v2", sale_id, 1) is Answer.SOLD_OUT
    assert STEPS["v2"].rows(sale_id) == [2]
