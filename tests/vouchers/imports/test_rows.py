"""The meaning of cells: headings in two languages, amounts and moments in many notations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest
from django.utils import timezone, translation

from seckill_site.web.csv_files import csv_parts
from tests.support.spreadsheets import CHINESE, ENGLISH, HOTPOT, NOODLES
from vouchers.imports.rows import ReadRow, example_rows, file_rows, read_row, text_rows
from vouchers.imports.spreadsheet import BadCell, Cell, FileRefused, read_sheet
from vouchers.models import Merchant, SaleStage, Voucher

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("english", "in_shanghai")]


def read(*rows: Sequence[Cell], headings: Sequence[str] = ENGLISH) -> list[ReadRow]:
    numbered = [(number, list(row)) for number, row in enumerate([headings, *rows], start=1)]
    return [read_row(row) for row in text_rows(numbered)]


def read_cell(column: str, cell: Cell) -> ReadRow:
    """Read a valid row with one cell replaced."""
    row: list[Cell] = list(HOTPOT)
    row[ENGLISH.index(column)] = cell
    return read(row)[0]


def refused(headings: list[str]) -> str:
    with pytest.raises(FileRefused) as error:
        read(NOODLES, headings=headings)
    return str(error.value)


# --- Headings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("headings", [ENGLISH, CHINESE, [it.upper() for it in ENGLISH]])
def test_headings_are_chinese_or_english(headings: list[str]) -> None:
    noodles, hotpot = read(NOODLES, HOTPOT, headings=headings)
    assert noodles.details["price_cents"] == 7_990
    assert noodles.terms is None
    assert hotpot.terms is not None
    assert hotpot.terms.stage == SaleStage.DRAFT


def test_headings_may_be_reordered_and_left_out() -> None:
    headings = ["face_value", " Title ", "售价"]
    assert read(["100", "Noodles", "80"], headings=headings)[0].details == {
        "title": "Noodles",
        "price_cents": 8_000,
        "face_value_cents": 10_000,
    }


def test_unknown_heading_is_reported_with_known_ones() -> None:
    text = refused(["titel", "price", "face value"])
    assert text.startswith("Unknown column “titel”. Known columns: id (编号), title (标题), ")


def test_missing_column_is_named() -> None:
    assert "missing: price (售价), face value (面值)." in refused(["title", "rules"])
    assert read(["7", "New title"], headings=["id", "title"])[0].voucher_id == 7


def test_repeated_column_is_named() -> None:
    assert refused(["title", "price", "face value", "标题"]) == (
        "The column “title (标题)” appears twice."
    )


def test_file_without_rows_is_refused() -> None:
    with pytest.raises(FileRefused, match="nothing below"):
        read()
    with pytest.raises(FileRefused, match="empty"):
        text_rows([])


def test_formula_as_heading_is_refused() -> None:
    with pytest.raises(FileRefused, match="Unknown column"):
        text_rows([(1, ["title", BadCell.FORMULA]), (2, ["a"])])


def test_columns_are_named_in_reader_language_first() -> None:
    with translation.override("zh-hans"), pytest.raises(FileRefused, match=r"售价 \(price\)"):
        read(NOODLES, headings=["title", "rules"])


# --- Cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cents"),
    [
        ("79.90", 7_990),
        ("79.9", 7_990),
        ("¥79.90", 7_990),
        ("￥ 79.90", 7_990),
        ("79.90元", 7_990),
        ("７９．９０", 7_990),
        ("1,200", 120_000),
        ("1,200.50", 120_050),
        ("0", 0),
        ("0.01", 1),
        ("0.29", 29),
        ("1.15", 115),
        ("1,000,000", 100_000_000),
    ],
)
def test_amount_keeps_its_cents_in_any_notation(text: str, cents: int) -> None:
    row = read(["", "Noodles", "", text, "1,000,000", "", "", "", ""])[0]
    assert row.problems == ()
    assert row.details["price_cents"] == cents


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("abc", "This is not an amount. Write it like 79.90, ¥79.90 or 1,200."),
        ("79,90", "This is not an amount. Write it like 79.90, ¥79.90 or 1,200."),
        ("1,2000", "This is not an amount. Write it like 79.90, ¥79.90 or 1,200."),
        ("$5", "This is not an amount. Write it like 79.90, ¥79.90 or 1,200."),
        ("NaN", "This is not an amount. Write it like 79.90, ¥79.90 or 1,200."),
        ("-1", "Ensure this value is greater than or equal to 0."),
        ("1e9", "Ensure this value is less than or equal to 1000000."),
        ("9" * 400, "Ensure this value is less than or equal to 1000000."),
        ("79.905", "Ensure that there are no more than 2 decimal places."),
    ],
)
def test_wrong_amount_is_reported_with_its_cell(text: str, why: str) -> None:
    short = text if len(text) <= 40 else text[:39] + "…"
    assert read_cell("price", text).problems[0] == f"price (售价), “{short}”: {why}"


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-02 10:00",
        "2030-01-02 10:00:00",
        "2030-01-02T10:00",
        "2030-1-2 10:00",
        "2030/1/2 10:00",
        "2030/01/02  10:00:00",
        "2030.1.2 10:00",
        "2030年1月2日 10:00",
        "2030年1月2日10时00分",
        "２０３０-01-02 10：00",
    ],
)
def test_moment_is_read_in_shop_zone_in_any_notation(text: str) -> None:
    row = read(["", "x", "", "1", "2", "5", text, "2030-01-03 10:00", ""])[0]
    assert row.terms is not None, row.problems
    begins_at = timezone.localtime(row.terms.begins_at)
    assert f"{begins_at:%Y-%m-%d %H:%M:%S %Z}" == "2030-01-02 10:00:00 CST"


@pytest.mark.parametrize(
    "text",
    ["2030-01-01", "01/02/2030 10:00", "tomorrow", "2030-02-30 10:00", "2030-01-01 25:00", "10:00"],
)
def test_wrong_moment_is_reported(text: str) -> None:
    assert read_cell("begins at", text).problems == (
        f"begins at (开始时间), “{text}”: This is not a date with a time. "
        "Write it like 2026-12-01 10:00.",
    )


def test_time_that_comes_twice_is_asked_for_with_its_offset() -> None:
    with timezone.override("America/New_York"):
        asked = read_cell("ends at", "2030-11-03 01:30").problems[0]
        row = read_cell("ends at", "2030-11-03 01:30 -05:00")
    assert "01:30-05:00 for the second" in asked
    assert row.terms is not None, row.problems
    assert row.terms.ends_at == dt.datetime(2030, 11, 3, 6, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize("unit", ["元", "¥", "￥", "¥元", " ￥ 元 "])
@pytest.mark.parametrize("column", ["id", "price", "face value", "stock", "limit"])
def test_cell_with_only_a_unit_is_reported(column: str, unit: str) -> None:
    [problem] = read_cell(column, unit.strip()).problems
    assert problem.startswith(f"{column} (")
    assert unit.strip() in problem


def test_skipped_time_is_reported(settings: object) -> None:
    with timezone.override("Europe/Berlin"):
        assert "2030-03-31 02:30" in read_cell("begins at", "2030-03-31 02:30").problems[0]


@pytest.mark.parametrize(
    ("column", "cell", "why"),
    [
        ("id", "7x", "This is not a whole number."),
        ("id", "0", "Ensure this value is greater than or equal to 1."),
        ("id", "9" * 30, "Ensure this value is less than or equal to 9223372036854775807."),
        ("title", "", "Fill this in: a row without an id is a new voucher."),
        ("title", "x" * 121, "Ensure this value has at most 120 characters"),
        ("title", "a\0b", "Null characters are not allowed."),
        ("rules", "x" * 4_001, "Ensure this value has at most 4000 characters"),
        ("face value", "", "Fill this in: a row without an id is a new voucher."),
        ("stock", "", "Fill this in too, or leave stock, start, end and limit empty."),
        ("stock", "5.5", "This is not a whole number. Write it like 500 or 1,200."),
        ("stock", "0", "Ensure this value is greater than or equal to 1."),
        ("stock", "1,000,001", "Ensure this value is less than or equal to 1000000."),
        ("begins at", "1999-01-01 10:00", "The year must be between 2000 and 2100."),
        ("begins at", "", "Fill this in too, or leave stock, start, end and limit empty."),
        ("ends at", "2030-01-01 10:00", "The end must be after the start."),
        ("limit", "21", "Ensure this value is less than or equal to 20."),
        ("price", BadCell.FORMULA, "This is a formula, and formulas are not calculated."),
        ("price", BadCell.ERROR, "This is a spreadsheet error."),
    ],
)
def test_each_wrong_cell_has_its_message(column: str, cell: Cell, why: str) -> None:
    problems = read_cell(column, cell).problems
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"{column} (")
    assert why in problems[0]


def test_row_shows_all_its_errors_at_once() -> None:
    row = read(["7x", "", "x" * 4_001, BadCell.FORMULA, "12o", "", "2030", "", "99", "more"])[0]
    assert sorted(it.partition(" (")[0].partition(",")[0] for it in row.problems) == sorted(
        ["to the right of the headings", *(it for it in ENGLISH if it not in ("title",))]
    )


def test_cell_merged_over_columns_is_refused_by_name() -> None:
    row = read(["", "Noodles", "", BadCell.MERGED, BadCell.MERGED, "", "", "", ""])[0]
    text = "This cell is merged across columns. Unmerge it, and fill in each column."
    assert row.problems == (f"price (售价): {text}", f"face value (面值): {text}")


def test_unread_cell_counts_as_filled_in() -> None:
    row = read([BadCell.ERROR, *[""] * 8])[0]
    assert row.problems == ("id (编号): This is a spreadsheet error. Enter a value.",)


def test_cell_without_heading_is_reported() -> None:
    row = read([*NOODLES, "more"])[0]
    assert row.problems == (
        "to the right of the headings, “more”: This cell has no heading. Put "
        "text with commas in quotation marks.",
    )


def test_row_with_id_needs_no_other_cell() -> None:
    row = read(["7", *[""] * 8])[0]
    assert (row.voucher_id, dict(row.details), row.problems) == (7, {}, ())


@pytest.mark.parametrize("chinese", [True, False])
def test_exported_rows_are_read_as_they_are(chinese: bool) -> None:
    typed = ["Mar-1", "=1+1", "'-quoted", "(80)", "-x\ny", "13800138000138000", "Tea"]
    merchant = Merchant(name="+Tea")
    vouchers = [
        Voucher(pk=n, title=text, rules=text, price_cents=1, face_value_cents=2, merchant=merchant)
        for n, text in enumerate(typed, start=1)
    ]
    headings, *rows = file_rows(vouchers, chinese=chinese)
    [_, *back] = read_sheet("".join(csv_parts(headings, [rows])).encode())
    found = [read_row(it) for it in text_rows([(1, list(headings)), *back])]
    assert [(it.title, it.details["rules"], it.problems) for it in found] == [
        (text, text, ()) for text in typed
    ]
    assert {it.details["merchant"] for it in found} == {"+Tea"}


@pytest.mark.parametrize("chinese", [True, False])
def test_example_rows_are_valid(chinese: bool) -> None:
    now = dt.datetime(2026, 11, 22, 9, 30, tzinfo=dt.UTC)
    headings, *rows = example_rows(chinese=chinese, now=now)
    alone, on_sale = read(*rows, headings=headings)
    assert alone.problems == on_sale.problems == ()
    assert (alone.terms is None, on_sale.terms is None) == (True, False)
