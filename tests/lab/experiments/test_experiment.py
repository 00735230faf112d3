"""An experiment: its table, its document in both languages, and its page."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import translation

from bench.around import ids
from lab import views
from lab.document import experiments_text, is_of_experiments
from lab.experiments import EXPERIMENTS
from lab.experiments.experiment import Experiment, Row, Table, add_tables, read_tables, text_of
from tests.support.stack import ROOT

ENGLISH, CHINESE = "around-the-six-steps.md", "around-the-six-steps.zh-CN.md"
FIGURES = ROOT / "docs" / "around-the-six-steps.json"

pytestmark = pytest.mark.django_db


def table(name: str = "ids", *, figure: float = 1_234.5) -> Table:
    headings = EXPERIMENTS[name].headings()
    row = ["this shop", figure, *(None for _ in headings[2:])]
    return Table(name, measured_on="2031-02-03", machine="a machine", rows=[row])


@pytest.mark.parametrize("name", [ENGLISH, CHINESE])
def test_documents_match_their_figures(name: str) -> None:
    """Where not: ``manage.py race --rewrite --document docs/around*.md`` makes them so."""
    text = experiments_text(name, read_tables(FIGURES))
    assert (ROOT / "docs" / name).read_text() == text


def test_every_experiment_has_its_table() -> None:
    tables = read_tables(FIGURES)
    assert list(tables) == list(EXPERIMENTS)
    for name, found in tables.items():
        assert found.rows
        assert {len(row) for row in found.rows} == {len(EXPERIMENTS[name].headings())}


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_story_has_no_markup_left_on_its_page(name: str, language: str) -> None:
    with translation.override(language):
        html = EXPERIMENTS[name].story_as_html()
    assert html.startswith("<p>")
    assert not re.search(r"\*\*|`|\]\(|<(?!/?(?:p|b|code|br)>)", html)


def test_story_is_escaped_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Experiment, "story", lambda _: "**a < b**, `c & d`, [six](six-steps.md)")
    html = EXPERIMENTS["ids"].story_as_html()
    assert html == "<p><b>a &lt; b</b>, <code>c &amp; d</code>, six</p>"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("kind", "kind"),
        (None, "–"),
        (12_345, "12,345"),
        (1_234.5, "1,234"),
        (1.25, "1.2"),
        (0, "0"),
    ],
)
def test_cells_are_rounded_for_readers(cell: str | float | None, shown: str) -> None:
    with translation.override("en"):
        assert text_of(cell) == shown


def test_tables_are_kept_by_experiment(tmp_path: Path) -> None:
    document = tmp_path / ENGLISH
    for figure in (1, 2):
        add_tables(document, [table(figure=figure)], EXPERIMENTS)
    assert read_tables(tmp_path / "around-the-six-steps.json") == {"ids": table(figure=2)}


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Let the experiment on ids measure nothing."""
    rows: list[Row] = [["this shop", *(7 for _ in EXPERIMENTS["ids"].headings()[1:])]]
    monkeypatch.setattr(ids, "repeat_and_reveal", lambda: rows)
    return rows


def test_command_prints_the_table_or_only_its_json(rows: list[Row]) -> None:
    out, as_json = io.StringIO(), io.StringIO()
    call_command("race", "ids", stdout=out)
    title, headings, row = out.getvalue().strip().splitlines()
    assert title == "ids: Ids for orders"
    assert headings.split()[0] == "kind"
    assert row.split()[:3] == ["this", "shop", "7"]
    call_command("race", "ids", "--json", stdout=as_json, stderr=io.StringIO())
    (found,) = json.loads(as_json.getvalue())
    assert found["rows"] == rows


@pytest.mark.usefixtures("rows")
def test_command_rewrites_only_documents_of_experiments(tmp_path: Path) -> None:
    documents = [tmp_path / name for name in (ENGLISH, CHINESE, "six-steps.md")]
    call_command("race", "ids", "--document", *map(str, documents))
    english, chinese, steps = documents
    assert "| this shop | 7 |" in english.read_text()
    assert "## Ids for orders" in english.read_text()
    assert "## 订单号" in chinese.read_text()
    assert not steps.exists()
    assert not is_of_experiments(steps)


def test_page_shows_story_and_figures(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "read_tables", lambda _: {"ids": table()})
    response = client.get("/lab/experiments/ids/", HTTP_ACCEPT="text/html")
    page = response.content.decode()
    assert EXPERIMENTS["ids"].story_as_html() in page
    assert "<td>1,234</td>" in page
    assert "2031-02-03, a machine" in page
    assert client.get("/lab/experiments/none/", HTTP_ACCEPT="text/html").status_code == 404


def test_unmeasured_experiment_has_a_page_without_figures(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(views, "FIGURES", tmp_path / "none.json")
    page = client.get("/lab/experiments/ids/", HTTP_ACCEPT="text/html")
    assert page.status_code == 200
    assert "<table" not in page.content.decode()
