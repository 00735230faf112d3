"""The verdict on a sale, from made-up rows and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from django.utils import translation

from lab.crowd.crowd import Crowd
from lab.crowd.sheet import FAILED, IN_HAND, UNANSWERED, Sheet
from lab.crowd.tables import notes_on
from lab.listing import ROOT, culprit_of, marked_lines
from lab.steps import STEPS
from lab.steps.step import Answer
from lab.verdict import Answers, Verdict, judge, percentile

pytestmark = pytest.mark.quick

QUIET = Answers(
    promised=frozenset({1, 2}),
    turned_away=frozenset(),
    unanswered=0,
    took_ms=[1.0, 2.0, 3.0, 4.0],
    first_us=1_000_000,
)


def judged(
    rows: list[int],
    *,
    answers: Answers = QUIET,
    offered: int = 2,
    told_lost: set[int] | None = None,
    barred: set[int] | None = None,
    has_started: bool = True,
) -> Verdict:
    return judge(
        step="v5",
        buyers=5,
        offered=offered,
        rows=rows,
        answers=answers,
        told_lost=told_lost or set(),
        barred=barred or set(),
        last_row_us=1_500_000,
        has_started=has_started,
    )


def test_each_promise_with_one_row_is_right() -> None:
    verdict = judged([1, 2])
    assert verdict.is_right
    assert verdict.findings == []
    assert verdict.orders_per_s == 4.0
    assert verdict.p99_ms == 4.0


def test_winner_told_sold_out_is_denied() -> None:
    told = replace(QUIET, denied=frozenset({2, 3}))
    assert judged([1, 2], answers=told).findings == [("denied", 1)]


def test_rows_before_the_start_are_early_and_none_are_missed() -> None:
    nobody, one = (replace(QUIET, promised=frozenset(it)) for it in ([], [1]))
    assert judged([], answers=nobody, has_started=False).is_right
    assert judged([1], answers=one, has_started=False).findings == [("early", 1)]


def test_rows_beyond_the_units_are_oversold() -> None:
    assert judged([1, 2, 3]).findings == [("oversold", 1)]


def test_second_row_of_a_buyer_is_doubled() -> None:
    assert judged([1, 2, 2, 2], offered=4).findings == [("doubled", 2)]


def test_promise_without_a_row_is_lost_and_undersold() -> None:
    assert judged([1]).findings == [("lost", 1), ("undersold", 1)]


def test_buyer_with_a_refused_receipt_is_not_lost() -> None:
    verdict = judged([1, 3], told_lost={2})
    assert verdict.told_lost == 1
    assert verdict.is_right


def test_undersold_counts_only_units_with_buyers() -> None:
    assert judged([1, 2], offered=9).undersold == 3
    assert judged([1, 2], offered=2).undersold == 0


def test_barred_buyer_without_row_is_stuck_unless_lost() -> None:
    assert judged([1], barred={1, 2, 3}).stuck == 1


def test_turned_away_buyer_who_bought_later_is_not_counted() -> None:
    answers = replace(QUIET, turned_away=frozenset({2, 4}))
    assert judged([1, 2], answers=answers).findings == [("turned_away", 1)]


def test_unfinished_sale_is_not_right() -> None:
    assert not replace(judged([1, 2]), is_quiet=False).is_right


def test_verdict_survives_json() -> None:
    verdict = judged([1, 2, 2])
    assert Verdict(**asdict(verdict)) == verdict


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 5), (90, 9), (99, 10), (100, 10)])
def test_percentile(percent: int, value: int) -> None:
    assert percentile(range(10, 0, -1), percent) == value


# --- What the crowd heard -------------------------------------------------------------------------


Press = tuple[str, int, int]
"""The state of a press, and when it began and ended."""


@pytest.fixture
def answers_to(tmp_path: Path) -> Callable[..., Answers]:
    """Call it with the presses of each buyer for a sheet's answers; users' ids start at 10."""

    def read(*presses: Press, faultless: bool = True, clicks: int = 1) -> Answers:
        crowd = Crowd(buyers=len(presses) // clicks, stock=1, clicks=clicks)
        sheet = Sheet(tmp_path / "sheet", crowd)
        for press, (state, began_us, ended_us) in enumerate(presses):
            if state == IN_HAND:
                sheet.begin(press)
            else:
                sheet.note(press, state)
            sheet.began_us[press], sheet.ended_us[press] = began_us, ended_us
        seen_elsewhere = Sheet(tmp_path / "sheet", crowd)
        return seen_elsewhere.answers(crowd, range(10, 10 + len(presses)), faultless=faultless)

    return read


def test_bought_and_queued_are_promises(answers_to: Callable[..., Answers]) -> None:
    presses = ((Answer.BOUGHT, 1, 2), (Answer.QUEUED, 1, 2), (Answer.SOLD_OUT, 1, 2))
    assert answers_to(*presses).promised == {10, 11}


def test_buyer_promised_and_told_sold_out_is_denied(answers_to: Callable[..., Answers]) -> None:
    told = (Answer.QUEUED, Answer.SOLD_OUT, Answer.SOLD_OUT, Answer.SOLD_OUT)
    presses = [(answer, 1, 2) for answer in told]
    assert answers_to(*presses, clicks=2).denied == {10}
    assert answers_to(*presses, clicks=2, faultless=False).denied == frozenset()


def test_sold_out_before_the_last_winner_is_turned_away(answers_to: Callable[..., Answers]) -> None:
    presses = ((Answer.SOLD_OUT, 1, 4), (Answer.SOLD_OUT, 2, 6), (Answer.BOUGHT, 5, 9))
    assert answers_to(*presses).turned_away == {10}
    assert answers_to(*presses, faultless=False).turned_away == frozenset()


def test_unanswered_presses_are_counted_and_not_timed(answers_to: Callable[..., Answers]) -> None:
    answers = answers_to(
        (IN_HAND, 5, 0), (UNANSWERED, 3, 9), (FAILED, 4, 9), (Answer.BUSY, 4, 2004)
    )
    assert (answers.unanswered, answers.errors) == (3, 1)
    assert answers.took_ms == [2.0]
    assert answers.first_us == 3


def test_one_process_is_struck(tmp_path: Path) -> None:
    sheets = [Sheet(tmp_path / "sheet", Crowd()) for _ in range(2)]
    assert [sheet.claim_strike() for sheet in sheets] == [True, False]


# --- Which line -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "finding", "code"),
    [
        ("v1", "oversold", 'update(stock=F("stock") - 1)'),
        ("v1", "doubled", "LabOrder.objects.create("),
        ("v1-as-read", "turned_away", "stock=sale.stock"),
        ("v1-version", "turned_away", "version=sale.version"),
        ("v1-retry", "turned_away", "range(TRIES)"),
        ("v1-retry-stale", "turned_away", "REPEATABLE READ"),
        ("v3-equal-key", "doubled", "Key(str(user_id)).lock"),
        ("v3-inside", "doubled", "with _held("),
        ("v4-nil", "errors", "<= 0 then return 'SOLD_OUT' end"),
        ("v5", "stuck", "decide("),
        ("v6-owned", "doubled", "px=LEASE_MS"),
        ("v6-watchdog", "doubled", ".renew()"),
    ],
)
def test_finding_names_its_line(step: str, finding: str, code: str) -> None:
    """The listings of the races are tested in ``test_listing.py``."""
    found = culprit_of(STEPS[step], finding)
    assert found
    assert code in found.code
    line = (ROOT / found.path).read_text().splitlines()[found.line - 1]
    assert found.code in line


def test_unmarked_finding_names_the_nearest_marked_line() -> None:
    found = culprit_of(STEPS["v2"], "oversold")
    assert found
    assert found.findings == ("doubled",)


def test_ours_has_no_marked_lines() -> None:
    assert marked_lines(STEPS["ours"]) == ()
    assert culprit_of(STEPS["ours"], "lost") is None


def test_notes_name_flaws_and_lines() -> None:
    verdict = replace(judged([1]), unanswered=1, error="OSError: gone", is_quiet=False)
    with translation.override("en"):
        notes = list(notes_on(verdict, has_fault=True))
    assert notes == [
        f"1 promised and never written: {culprit_of(STEPS['v5'], 'lost')}",
        f"1 left over although there were enough buyers: {culprit_of(STEPS['v5'], 'undersold')}",
        "it did not finish in time",
        "the fault did not happen: the sale ended first",
        "most of the missing answers were: OSError: gone",
    ]
