"""The parameters of tests in the slow tier."""

from __future__ import annotations

import pytest

from tests.support.tiers import slow_after

pytestmark = pytest.mark.quick

SLOW = pytest.mark.slow


def test_values_after_the_first_are_slow() -> None:
    assert slow_after(1, "abc") == [
        "a",
        pytest.param("b", marks=SLOW),
        pytest.param("c", marks=SLOW),
    ]
    assert slow_after(1, [[1], [2, 3]]) == [[1], pytest.param([2, 3], marks=SLOW)]


def test_tuple_is_a_value_for_each_name() -> None:
    assert slow_after(0, [(1, 2)]) == [pytest.param(1, 2, marks=SLOW)]


def test_parameter_keeps_its_name_and_marks() -> None:
    cluster = pytest.mark.cluster
    (slow,) = slow_after(0, [pytest.param((1, 2), marks=cluster, id="pair")])
    assert slow == pytest.param((1, 2), marks=(cluster, SLOW), id="pair")
