"""Cells that a spreadsheet keeps as text, in a file that it opens as it is."""

from __future__ import annotations

import pytest

from seckill_site.web.csv_files import (
    as_typed,
    csv_parts,
    csv_response,
    exact,
    harmless,
    unevaluated,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "text",
    [
        "=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1", "＝1+1", "＠x",
        '=HYPERLINK("https://evil.example","x")', "=cmd|' /C calc'!A0",
    ],
)  # fmt: skip
def test_formula_gets_an_apostrophe(text: str) -> None:
    assert harmless(text) == unevaluated(text) == f"'{text}"


@pytest.mark.parametrize(
    "text",
    [
        *("12-1", "1E5", "13800138000138000", "2026年12月1日", "１２", "0.50"),
        *("Mar-1", "may88", "(80)", "1-Jan", "1 Sept 2026", "December 7, 2026", "JUN3", "Aug 09"),
        *("（80）", "50%", "$80", "¥80", "1/2", "1:30", "1:30 PM", "3 a", "下午3时5分", "(1.5e3)"),
    ],
)
def test_text_like_a_number_gets_a_tab(text: str) -> None:
    assert harmless(text) == exact(text) == f"\t{text}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "火锅券", "100元火锅券", 'a "quoted"', "two\nlines", "a=b"),
        *("May", "Mars 1", "Marble 2", "(tea)", "Tea (80)", "Juno 5", "'quoted'"),
    ],
)
def test_plain_text_is_unchanged(text: str) -> None:
    assert harmless(text) == unevaluated(text) == text


@pytest.mark.parametrize("text", ["=1", "'=1", "''-1", "-x", "＝x", "Mar-1", "007", "'tea'", "tea"])
def test_harmless_text_is_read_back_as_typed(text: str) -> None:
    assert as_typed(harmless(text)) == text


def test_file_has_excels_mark_and_quotes_every_cell() -> None:
    parts = list(csv_parts(["id", "name"], [[[exact("17"), 'a "b"']], [["", 2.5]]]))
    assert parts == ['\ufeff"id","name"\r\n', '"\t17","a ""b"""\r\n', '"","2.5"\r\n']


def test_only_an_iterator_is_streamed() -> None:
    """What is whole already needs no thread while its reader is slow."""
    assert csv_response(["a", "b"], name="a.csv").content == b"ab"  # type: ignore[attr-defined]
    assert csv_response(iter("ab"), name="a.csv").streaming
