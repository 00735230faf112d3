"""The lines of the benchmark's table: verdicts, text and picture."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from bench.sale.outcome import EXACT, OURS, Outcome, draw, nice_top, verdict_on
from bench.sale.report import HEADINGS, Line, Target, report_on
from bench.tables import markdown, ratios, spread, write_part

pytestmark = pytest.mark.quick

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
AT_LEAST_4 = Target(4)
AT_MOST_1_1 = Target(1.1, at_least=False)
MACHINE = {
    "cores": 2, "processor": "a processor", "memory_gib": 4, "kernel": "6", "python": "3",
    "packages": {"django": "5"}, "mariadb": {"version": "10"},
    "redis": {"save": "", "version": "7"},
    "web": {"server": "granian", "workers": 2, "threads": 4}, "batch": 500,
    "plan": {"repetitions": 5, "sale_repetitions": 3, "size_repetitions": 3},
}  # fmt: skip


def line_of(values: list[float], target: Target | None) -> Line:
    return Line("f", "a whole sale", "the classic design", target, values, unit="s")


@pytest.mark.parametrize(
    ("values", "target", "verdict"),
    [
        ([3.0, 4.0, 9.0], AT_LEAST_4, "pass"),
        ([9.0, 3.9, 3.0], AT_LEAST_4, "MISS"),
        ([1.0, 1.1, 1.3], AT_MOST_1_1, "pass"),
        ([1.0, 1.11, 1.3], AT_MOST_1_1, "MISS"),
        ([1.0], None, "shown"),
    ],
)
def test_the_median_decides(values: list[float], target: Target | None, verdict: str) -> None:
    assert line_of(values, target).verdict == verdict


def test_ratios_compare_the_same_repetition() -> None:
    assert ratios([10.0, 20.0], [5.0, 40.0]) == [2.0, 0.5]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        ratios([1.0, 2.0], [1.0])


def test_spread_runs_from_least_to_greatest() -> None:
    assert spread([2.0, 1.0, 3.5]) == "1–3.50"
    assert spread([2.0]) == "–"


def test_line_has_units_and_verdict() -> None:
    line = Line(
        "a", "wins", "empty", Target(0.5), [0.4, 0.6, 0.7], "/s", [1.0, 2.0, 3.0], [4.0], [0.5]
    )
    assert line.cells() == [
        "a", "wins", "empty", "2 /s", "4 /s", "0.60×", "0.40–0.70", "≥ 0.50×", "pass", "0.50×", "",
    ]  # fmt: skip
    table = markdown(HEADINGS, [line.cells()]).splitlines()
    assert len(table) == 3
    assert {row.count("|") for row in table} == {len(HEADINGS) + 1}


def test_document_keeps_its_text_around_the_figures(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    report = report_on([line_of([4.0], AT_LEAST_4)], [], MACHINE)
    report.publish(Namespace(json=None, markdown=document))
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| row |")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "Redis: version 7\n" in text


@pytest.mark.parametrize(
    ("value", "top"), [(0.4, 1), (1, 1), (17, 20), (230, 250), (9_000, 10_000)]
)
def test_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == top


def test_axis_labels_are_plain_numbers() -> None:
    answers = [(at_s, 0.01) for at_s in (24.0, 24.0, 0.1)] + [(12.0, 0.01)] * 40_000
    picture = draw([Outcome(OURS, 1.0, 24.0, answers, [0.01], EXACT)])
    for label in ("18.75", "25", "100,000", "75,000"):
        assert f">{label}</text>" in picture
    assert "e+" not in picture


def test_latency_of_the_accepted_leaves_out_the_refused() -> None:
    outcome = Outcome(OURS, 1.0, 1.0, [(0.1, 0.04), (0.2, 0.002)], [0.04], EXACT)

    assert (outcome.latency_ms(50), outcome.accepted_ms(50)) == (2, 40)


def test_sale_is_exact_only_if_all_records_agree() -> None:
    right: dict[str, Any] = {
        "units": 2,
        "winners": {1, 2},
        "rows": [2, 1],
        "books_agree": True,
        "others": set(),
    }
    assert verdict_on(**right) == EXACT
    wrong: dict[str, dict[str, Any]] = {
        "1 rows for 2 units": {"rows": [1]},
        "1 buyers have two": {"rows": [1, 1]},
        "2 buyers were told otherwise than the rows": {"rows": [1, 3]},
        "the stock does not fit the rows": {"books_agree": False},
        "answers with status [503]": {"others": {503}},
    }
    assert {verdict_on(**{**right, **change}) for change in wrong.values()} == set(wrong)


def test_text_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_part(page, "figures", "first")
    assert page.read_text() == f"{BEGIN}\nfirst\n{END}\n"

    page.write_text(f"# Title\n{BEGIN}\nfirst\n{END}\nmore\n")
    write_part(page, "figures", "second")
    assert page.read_text() == f"# Title\n{BEGIN}\nsecond\n{END}\nmore\n"


@pytest.mark.parametrize("document", ["# Title\n", f"{BEGIN}\nno end\n", f"{END}\n"])
def test_document_without_both_marks_is_left_alone(tmp_path: Path, document: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(document)

    with pytest.raises(ValueError, match="has no marks for figures"):
        write_part(page, "figures", "text")

    assert page.read_text() == document
