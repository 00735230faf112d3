"""The benchmark of capacity: medians, and rehearsals beside the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backoffice.capacity.figures import Cost, Work
from backoffice.capacity.prediction import predict_rehearsal
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _script_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmark find what it starts its servers with, as ``script/bench`` does."""
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))


def test_median_of_all_repetitions_counts() -> None:
    from bench.capacity.costs import median_of

    turns = [
        replace(
            FIGURES,
            rows_per_s=value * 1_000,
            lag_s=value,
            costs={**FIGURES.costs, Work.WIN: Cost(value, 10 - value, value, value)},
        )
        for value in (3, 9, 5)
    ]
    costs = {**FIGURES.costs, Work.WIN: Cost(5, 5, 5, 5)}
    assert median_of(turns) == replace(FIGURES, rows_per_s=5_000, lag_s=5, costs=costs)


@pytest.mark.parametrize(
    ("times", "verdict", "worst"),
    [(1.0, "pass", "0%"), (0.75, "pass", "25%"), (1.25, "pass", "25%"), (1.5, "MISS", "50%")],
)
def test_rehearsals_agree_within_the_tolerance(times: float, verdict: str, worst: str) -> None:
    from bench.capacity.rehearsals import Size, report_on_rehearsals

    plan = predict_rehearsal(figures=FIGURES, buyers=10_000, units=2_000)
    measured = {
        "requests_per_s": plan.requests_per_s / times,
        "drain_s": plan.drain_s,
        "web_s": plan.web_s,
    }
    slower = {"requests_per_s": 1.0, "drain_s": 99.0, "web_s": 99.0}
    report = report_on_rehearsals(FIGURES, {Size(10_000, 2_000): [measured] * 2 + [slower]})
    assert [row[-1] for row in report.rows] == [verdict, "pass", "pass"]
    assert f"The greatest difference is {worst};" in report.text
