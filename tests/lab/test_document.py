"""``docs/six-steps.md``: made from figures of races by the command, in both languages."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.crowd.results import Result, add_result, read_results
from lab.document import document_text, write_document
from lab.figures import NoDocument, figures_path
from lab.steps import STEPS
from lab.verdict import Verdict
from tests.support.stack import ROOT

pytestmark = pytest.mark.quick

DOCS = ROOT / "docs"
ENGLISH, CHINESE = "six-steps.md", "six-steps.zh-CN.md"


def verdict(step: str = "v1", **changes: Any) -> Verdict:
    found = Verdict(
        step=step, buyers=9, offered=2, sold=2, oversold=0, doubled=0, lost=0, undersold=0,
        turned_away=0, stuck=0, told_lost=0, unanswered=0, orders_per_s=20.0, p99_ms=1.5,
    )  # fmt: skip
    return replace(found, **changes)


def result(*verdicts: Verdict, fault: Fault = Fault.NONE) -> Result:
    return Result(
        crowd=Crowd(buyers=9, stock=2),
        fault=fault,
        measured_on="2031-02-03",
        machine="a machine",
        verdicts=list(verdicts),
    )


# --- The committed documents ----------------------------------------------------------------------


@pytest.mark.parametrize("name", [ENGLISH, CHINESE])
def test_documents_match_their_figures(name: str) -> None:
    """Where not: ``manage.py race --rewrite --document docs/six-steps*.md`` makes them so."""
    results = read_results(DOCS / "six-steps.json")
    assert (DOCS / name).read_text() == document_text(name, results)


def test_every_fault_has_its_table_with_every_step() -> None:
    results = read_results(DOCS / "six-steps.json")
    assert [it.fault for it in results] == list(Fault)
    for table in results:
        steps = ["ours"] if table.fault is Fault.INSTANCES else list(STEPS)
        assert [it.step for it in table.verdicts] == steps


def test_figures_show_each_flaw_and_none_of_ours() -> None:
    results = read_results(DOCS / "six-steps.json")
    tables = {table.fault: {it.step: it for it in table.verdicts} for table in results}
    plain, kill, pause = (tables[it] for it in (Fault.NONE, Fault.KILL, Fault.PAUSE))
    assert plain["v1"].oversold
    assert plain["v1-late-filter"].oversold
    turning_away = ("v1-as-read", "v1-version", "v1-retry-stale")
    assert all(plain[step].turned_away for step in turning_away)
    doubling = (
        *("v1-any-left", "v1-retry", "v1-for-update", "v1-scan", "v2"),
        *("v3", "v3-one-lock", "v3-equal-key", "v3-inside", "v3-bypassed", "v3-uncounted"),
    )
    assert all(plain[step].doubled for step in doubling)
    assert all(plain[step].denied for step in ("v4", "v5", "v5-stream", "v6-stream"))
    assert not plain["v4-window"].denied
    assert plain["v5-returning"].lost
    assert kill["v3-bypassed"].undersold
    assert kill["v4"].stuck
    assert kill["v5"].lost
    assert kill["v5-stream"].lost
    assert all(kill[step].lost for step in ("v5-new-only", "v6-queue", "v6-stream"))
    assert not kill["v6-renewed"].lost
    assert kill["v6-setnx"].stuck
    assert all(pause[step].doubled for step in ("v6-expiring", "v6-owned", "v6-watchdog"))
    assert tables[Fault.REDIS_RESTART]["v5-stream"].lost
    assert all(table["ours"].is_right for table in tables.values())


def test_page_says_what_each_instance_answered() -> None:
    killed = verdict("ours", answered=[7, 193], sent_on=10)
    page = document_text(ENGLISH, [result(), result(killed, fault=Fault.INSTANCES)])
    said = "was killed had answered 7 presses, and the other one answered 193. nginx had sent 10 of"
    assert said in " ".join(page.split())


def test_linked_lines_exist() -> None:
    links = re.findall(r"\.\./(lab/\S+?)#L(\d+)\)`?: `(.+)`", (DOCS / ENGLISH).read_text())
    assert links
    for path, line, code in links:
        assert code in (ROOT / path).read_text().splitlines()[int(line) - 1]


# --- How one is made ------------------------------------------------------------------------------


def test_every_step_has_its_chapter() -> None:
    sections = document_text(ENGLISH, [result(verdict())]).split("\n## ")
    for step in STEPS:
        title = f"{step.partition('-')[0].capitalize()}: "
        (chapter,) = (it for it in sections if it.startswith(title))
        assert re.search(f"`{step}`|interleave {step} ", chapter)


def test_flaws_are_bold_in_the_table_with_their_code_below() -> None:
    text = document_text(ENGLISH, [result(verdict(sold=5, oversold=3))])
    assert "| `v1` | 5 | **3** | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 20 | 1.5 |" in text
    assert "9 buyers, 2 units, 2 × 8 threads; 2031-02-03, a machine." in text
    assert re.search(r"- \[lab/steps/v1\.py:\d+\]\(\.\./lab/steps/v1\.py#L\d+\): `find\(", text)
    assert "manage.py interleave v1 last-unit\n" in text


def test_document_says_what_buyers_saw_instead_of_an_answer() -> None:
    found = verdict("v4-nil", sold=0, errors=18, unanswered=18, error="ResponseError: nil")
    text = document_text(ENGLISH, [result(found)])
    assert "`v4-nil`: 18 presses answered with an error (`ResponseError: nil`)\n" in text
    assert re.search(r"- \[lab/lua/compare_nil\.lua:\d+\]", text)


def test_document_omits_evidence_without_flaws() -> None:
    text = document_text(ENGLISH, [result(verdict())])
    assert "Where to look" not in text
    assert "In the tables" not in text


def test_errors_are_told_once_for_all_faults() -> None:
    found = verdict("v4-nil", errors=3, error="nil")
    text = document_text(ENGLISH, [result(found), result(found, fault=Fault.KILL)])
    assert text.count("`v4-nil`: 3 presses answered with an error") == 1


def test_document_counts_receipts_of_lost_orders() -> None:
    text = document_text(ENGLISH, [result(verdict("ours", told_lost=4), fault=Fault.REDIS_RESTART)])
    assert "- Redis comes back empty, `ours`: 4 told in their receipts" in text


def test_both_languages_have_the_same_figures() -> None:
    results = [result(verdict(sold=5, oversold=3))]
    english, chinese = (document_text(name, results) for name in (ENGLISH, CHINESE))
    row = "| `v1` | 5 | **3** |"
    assert row in english
    assert row in chinese
    assert "(six-steps.zh-CN.md)" in english
    assert english != chinese


# --- Files ----------------------------------------------------------------------------------------


def test_result_replaces_the_last_one_with_its_fault(tmp_path: Path) -> None:
    document = tmp_path / ENGLISH
    kill = result(verdict(stuck=1), fault=Fault.KILL)
    for found in (kill, result(verdict()), result(verdict(oversold=1))):
        add_result(document, found)
    assert read_results(tmp_path / "six-steps.json") == [result(verdict(oversold=1)), kill]


def test_all_languages_share_their_figures(tmp_path: Path) -> None:
    assert figures_path(tmp_path / ENGLISH) == figures_path(tmp_path / CHINESE)
    with pytest.raises(NoDocument, match="name the steps before"):
        figures_path(Path("v1"))


def test_document_without_figures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoDocument, match="has no figures yet"):
        write_document(tmp_path / ENGLISH)


def test_rewrite_makes_documents_from_their_figures(tmp_path: Path) -> None:
    documents = [tmp_path / ENGLISH, tmp_path / CHINESE]
    found = result(verdict())
    (tmp_path / "six-steps.json").write_text(json.dumps([asdict(found)]))
    call_command("race", "--rewrite", "--document", *map(str, documents))
    for document in documents:
        assert document.read_text() == document_text(document.name, [found])
