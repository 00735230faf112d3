"""Tables read from files: every encoding and delimiter that Excel saves, and no bomb."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.spreadsheets import CHINESE, NOODLES, SHEET, as_csv, as_xlsx, part, repacked
from vouchers.imports import spreadsheet
from vouchers.imports.spreadsheet import BadCell, Cell, FileRefused, read_sheet

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("english")]

ROWS = [CHINESE, NOODLES]


def cells(content: bytes) -> list[list[Cell]]:
    return [row for _, row in read_sheet(content)]


def refused(content: bytes) -> str:
    with pytest.raises(FileRefused) as error:
        read_sheet(content)
    return str(error.value)


def xlsx_cell(value: Any) -> Any:
    return cells(as_xlsx([value]))[0][0]


# --- CSV ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_is_read_as_excel_saves_it(encoding: str, delimiter: str) -> None:
    assert cells(as_csv(*ROWS, delimiter=delimiter, encoding=encoding)) == ROWS


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_ending_is_read(end: str) -> None:
    assert cells(f"a,b{end}c,d{end}".encode()) == [["a", "b"], ["c", "d"]]


def test_multiline_cell_counts_as_one_row() -> None:
    rows = cells(as_csv(["a"], ['one\ntwo "three", four'], ["last"]))
    assert rows == [["a"], ['one\ntwo "three", four'], ["last"]]


def test_blank_rows_are_skipped_but_counted() -> None:
    assert read_sheet(b"a\r\n\r\nb\r\n\r\n,,\r\n") == [(1, ["a"]), (3, ["b"])]


@pytest.mark.parametrize("broken", ['"open, b', 'a,"b"c\r\n', "x" * 200_000])
def test_invalid_csv_row_is_named(broken: str) -> None:
    assert refused(f"a,b\r\n{broken}".encode()).startswith("Row 2 cannot be read")


def test_unknown_encoding_is_refused() -> None:
    assert "neither a CSV file in UTF-8 or GBK" in refused(b"\xff\x81\xff\xff")


# --- XLSX -----------------------------------------------------------------------------------------


def test_first_sheet_of_xlsx_is_read() -> None:
    assert cells(as_xlsx(*ROWS)) == [CHINESE, NOODLES[:5]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (79.9, "79.9"),
        (0.1 + 0.2, "0.3"),
        (1200, "1200"),
        ("79.90 ", "79.90"),
        (dt.datetime(2026, 12, 1, 10, 0), "2026-12-01 10:00:00"),
        (dt.datetime(2026, 12, 1, 23, 59, 59), "2026-12-01 23:59:59"),
        (dt.date(2026, 12, 1), "2026-12-01 00:00:00"),
        ("=1+1", BadCell.FORMULA),
        ("#REF!", BadCell.ERROR),
    ],
)
def test_cell_becomes_text_shown_by_excel(value: Any, text: object) -> None:
    assert xlsx_cell(value) == text


def test_text_like_a_formula_is_text() -> None:
    book = as_xlsx(["text"])
    sheet = part(book, SHEET).replace(b"<t>text</t>", b"<t>=1+1</t>")
    assert cells(repacked(book, {SHEET: sheet})) == [["=1+1"]]


def test_workbook_with_wrong_dimensions_is_read_whole() -> None:
    book = as_xlsx(["a", "b"], ["c", "d"])
    lying = part(book, SHEET).replace(b'ref="A1:B2"', b'ref="A1"')
    assert cells(repacked(book, {SHEET: lying})) == [["a", "b"], ["c", "d"]]


def test_distant_row_keeps_its_number() -> None:
    book = as_xlsx(["a"], ["b"])
    far = part(book, SHEET).replace(b'<row r="2">', b'<row r="9000">').replace(b'"A2"', b'"A9000"')
    assert read_sheet(repacked(book, {SHEET: far})) == [(1, ["a"]), (9000, ["b"])]


def test_row_beyond_excel_limit_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheet, "_LAST_ROW", 1_000)
    book = as_xlsx(["a"], ["b"])
    far = part(book, SHEET).replace(b'<row r="2">', b'<row r="999999999999">')
    assert cells(repacked(book, {SHEET: far})) == [["a"]]


# --- What nobody sees -----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [as_csv, as_xlsx])
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("售价_x000D_", "售价"),
        ("face_x000D_\nvalue", "face\nvalue"),
        ("one_x000D__x000A_two", "one\ntwo"),
        ("\u200b\u200eid\u2060", "id"),
        ("7\u200c9\u00ad.9\ufeff0", "79.90"),
        ("\u202d79.90\u202c", "79.90"),
        ("👩\u200d🍳 tea", "👩\u200d🍳 tea"),
        ("te\u200da", "tea"),
    ],
)
def test_unseen_characters_are_cleaned(made: Any, text: str, clean: str) -> None:
    assert cells(made([text, "x"])) == [[clean, "x"]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_second_byte_order_mark_is_cleaned(encoding: str) -> None:
    assert cells('\ufeff"a,b",c\r\n'.encode(encoding)) == [["a,b", "c"]]


# --- Merged cells ---------------------------------------------------------------------------------


def test_cell_merged_over_rows_is_filled_down() -> None:
    book = as_xlsx(["title", "merchant"], ["a", "Tea"], ["b", ""], ["c", ""], merged=("B2:B3",))
    assert cells(book) == [["title", "merchant"], ["a", "Tea"], ["b", "Tea"], ["c"]]


def test_merged_cell_makes_no_row_of_its_own() -> None:
    book = as_xlsx(["title", "merchant"], ["a", "Tea"], merged=("B2:B9",))
    assert read_sheet(book) == [(1, ["title", "merchant"]), (2, ["a", "Tea"])]


def test_cell_merged_over_columns_is_marked_in_each_row() -> None:
    book = as_xlsx(["title", "price", "face value"], ["a", 8, ""], ["b", "", ""], merged=("B2:C3",))
    assert [row[:2] for row in cells(book)[1:]] == [["a", BadCell.MERGED], ["b", BadCell.MERGED]]


def test_merged_headings_and_blanks_stay() -> None:
    book = as_xlsx(["title", ""], ["a", ""], ["b", ""], merged=("A1:B1", "B2:B3"))
    assert cells(book) == [["title"], ["a"], ["b"]]


def test_merged_cells_are_those_of_the_first_sheet() -> None:
    rows = ["title"], ["a"], ["b"]
    other = part(as_xlsx(*rows, merged=("A2:A3",)), SHEET)
    book = repacked(as_xlsx(*rows), {"xl/worksheets/sheet0.xml": other})
    assert cells(book) == [["title"], ["a"], ["b"]]


def test_overlapping_merged_cells_are_refused() -> None:
    book = as_xlsx(["title"], ["a"], ["b"], merged=("A2:A3",))
    twice = part(book, SHEET).replace(b"</mergeCells>", b'<mergeCell ref="A2:A3"/></mergeCells>')
    assert "cannot be read" in refused(repacked(book, {SHEET: twice}))


# --- Refusals -------------------------------------------------------------------------------------


def test_file_above_5_mb_is_refused() -> None:
    assert "larger than 5 MB" in refused(b"a" * (spreadsheet.MOST_BYTES + 1))


def test_more_than_5_000_rows_are_refused() -> None:
    rows = [["title"], *([f"{number}"] for number in range(spreadsheet.MOST_ROWS))]
    assert len(read_sheet(as_csv(*rows))) == 5_001
    assert "more than 5,000 rows" in refused(as_csv(*rows, ["one more"]))


@pytest.mark.parametrize("made", [as_csv, as_xlsx])
def test_row_with_too_many_cells_is_refused(made: Any) -> None:
    assert len(cells(made(["a"] * 1_000))[0]) == 1_000
    assert refused(made(["a"], ["b"] * 1_001)) == "Row 2 has too many cells."


@pytest.mark.slow
def test_largest_allowed_file_is_read() -> None:
    row = [*NOODLES[:3], 79.9, 100, 500, *[dt.datetime(2030, 1, 1, hour) for hour in (10, 12)], 1]
    assert (
        len(read_sheet(as_xlsx(CHINESE, *([number, *row[1:]] for number in range(5_000))))) == 5_001
    )


def test_old_excel_file_is_refused_with_advice() -> None:
    assert "Save it as .xlsx" in refused(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500)


def test_macros_are_refused() -> None:
    assert "macros" in refused(repacked(as_xlsx(["a"]), {"xl/vbaProject.bin": b"\xd0\xcf\x11\xe0"}))


@pytest.mark.parametrize(
    "bomb",
    [
        b"<a>" + b"\0" * (61 * 1024 * 1024) + b"</a>",
        b"<c/>" * 500_001,
        b'<!DOCTYPE a [<!ENTITY b "cccc">]><worksheet>&b;</worksheet>',
        '<!DOCTYPE a [<!ENTITY b "cccc">]><worksheet>&b;</worksheet>'.encode("utf-16"),
        '<!DOCTYPE a [<!ENTITY b "cccc">]><worksheet>&b;</worksheet>'.encode("utf-16-le"),
        '\n<!DOCTYPE a [<!ENTITY b "cccc">]><worksheet>&b;</worksheet>'.encode("utf-16-le"),
        ' <!DOCTYPE a [<!ENTITY b "cccc">]><worksheet>&b;</worksheet>'.encode("utf-16-be"),
    ],
    ids=[
        "large",
        "tags",
        "entities",
        "entities in UTF-16",
        "entities in UTF-16 without a mark",
        "entities in UTF-16 after a line",
        "entities in UTF-16 after a blank",
    ],
)
def test_zip_bomb_is_refused_before_unpacking(bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openpyxl.reader.excel.ExcelReader", None)
    content = repacked(as_xlsx(["a"]), {SHEET: bomb})
    assert len(content) < 100_000
    assert "Excel file contains too much data" in refused(content)


def test_zip_without_workbook_is_refused() -> None:
    assert "cannot be read" in refused(repacked(as_xlsx(["a"]), {"[Content_Types].xml": b"<a/>"}))


def test_workbook_without_sheet_is_refused() -> None:
    book = as_xlsx(["a"])
    sheets_of = part(book, "xl/workbook.xml")
    begin, end = sheets_of.index(b"<sheets>"), sheets_of.index(b"</sheets>")
    without = sheets_of[: begin + 8] + sheets_of[end:]
    assert "cannot be read" in refused(repacked(book, {"xl/workbook.xml": without}))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", b"PK\x03\x04", b"\xef\xbb\xbf", b"\xff\xfe"]))
def test_garbage_is_read_or_refused(garbage: bytes, begin: bytes) -> None:
    try:
        rows = read_sheet(begin + garbage)
    except FileRefused:
        return
    assert all(isinstance(cell, str) for _, row in rows for cell in row)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_workbook_is_read_or_refused(data: st.DataObject) -> None:
    book = as_xlsx(*ROWS)
    name = data.draw(st.sampled_from([SHEET, "xl/workbook.xml", "xl/styles.xml"]))
    xml = bytearray(part(book, name))
    for _ in range(data.draw(st.integers(1, 4))):
        xml[data.draw(st.integers(0, len(xml) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_sheet(repacked(book, {name: bytes(xml)}))
    except FileRefused:
        return
