"""The benchmark of capacity: medians, and rehearsals beside the plan."""

from __future__ import annotations

import pytest
from django.conf import settings

from backoffice.capacity.figures import DOCUMENTED, Cost, Operation, read_figures
from backoffice.capacity.prediction import predict_rehearsal
from tests.support.capacity import FIGURES

pytestmark = pytest.mark.quick


def test_medians_of_all_repetitions_count() -> None:
    from bench.capacity.costs import Orders, figures_of

    def cost(value: float) -> Cost:
        return Cost(value, 10 - value, value, value)

    values = (3, 9, 5)
    figures = figures_of(
        {"cores": 2, "processor": "a processor"},
        requests=[{Operation.PAGE: cost(value)} for value in values],
        orders=[Orders(cost(it), cost(it + 1), 10 * it, 20 * it, lag_s=it) for it in values],
        rows_per_s=[100.0, 1.0, 2.0],
        unit_bytes=200,
    )
    assert figures.costs == {
        Operation.PAGE: cost(5),
        Operation.WIN: cost(5),
        Operation.REFUSAL: cost(6),
    }
    assert (figures.wins_per_s, figures.refusals_per_s, figures.lag_s) == (50, 100, 5)
    assert (figures.machine, figures.rows_per_s) == ("2 cores of a processor", 2)


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


def test_documentation_shows_the_figures_of_the_default() -> None:
    """Both come from ``script/bench capacity``: copy its file when the page changes."""
    from bench.capacity.costs import report_on_costs
    from bench.tables import markdown

    report = report_on_costs(read_figures(DOCUMENTED))
    lines = [*markdown(report.headings, report.rows).splitlines(), *report.text.splitlines()]
    page = (settings.BASE_DIR / "docs/capacity.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line not in page] == []
