"""The prediction of a rehearsal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backoffice.capacity.prediction import predict_rehearsal
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick


def test_clicks_win_first_and_are_refused_then() -> None:
    found = predict_rehearsal(figures=FIGURES, buyers=10_000, units=2_000)
    # every tenth buyer clicks twice: 2,200 clicks at 5,000 a second, 8,800 at 8,000
    assert found.requests_per_s == pytest.approx(11_000 / (0.44 + 1.1))
    assert found.web_s == pytest.approx(1.1)


def test_last_row_follows_the_last_winning_click() -> None:
    found = predict_rehearsal(figures=FIGURES, buyers=10_000, units=2_000)
    assert found.drain_s == pytest.approx(0.44 + 0.1)


def test_slow_writer_decides_about_the_last_row() -> None:
    figures = replace(FIGURES, rows_per_s=100)
    found = predict_rehearsal(figures=figures, buyers=10_000, units=2_000)
    assert found.drain_s == pytest.approx(20.1)


def test_unsold_units_cost_nothing() -> None:
    some, more = (
        predict_rehearsal(figures=FIGURES, buyers=1_000, units=it, duplicates=0)
        for it in (1_000, 2_000)
    )
    assert some == more
