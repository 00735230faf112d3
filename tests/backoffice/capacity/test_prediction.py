"""The prediction of a rehearsal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backoffice.capacity.prediction import predict_rehearsal
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick


def test_all_clicks_share_the_busy_cores() -> None:
    found = predict_rehearsal(figures=FIGURES, buyers=10_000, units=2_000)
    # 2,200 clicks of 210 + 90 µs and 8,800 of 110 + 90 µs, on 2 cores that are 80 % busy
    assert found.requests_per_s == pytest.approx(11_000 / (2.42 / 1.6))
    assert found.web_s == pytest.approx(1.1)


def test_last_row_follows_the_last_winning_click() -> None:
    found = predict_rehearsal(figures=FIGURES, buyers=10_000, units=2_000)
    # 2,200 clicks buy, as every tenth buyer clicks twice
    assert found.drain_s == pytest.approx(2_200 * 300e-6 / 1.6)


def test_slow_writer_decides_about_the_last_row() -> None:
    figures = replace(FIGURES, rows_per_s=100)
    found = predict_rehearsal(figures=figures, buyers=10_000, units=2_000)
    assert found.drain_s == pytest.approx(20)


def test_unsold_units_cost_nothing() -> None:
    some, more = (
        predict_rehearsal(figures=FIGURES, buyers=1_000, units=it, duplicates=0)
        for it in (1_000, 2_000)
    )
    assert some == more
