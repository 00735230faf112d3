"""Tables read from spreadsheet files: CSV as Excel saves it, and XLSX.

Every cell becomes text as the spreadsheet shows it. Nothing in a file is ever evaluated.
"""

import codecs
import csv
import datetime as dt
import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import count
from typing import Any
from zipfile import ZipFile

from seckill_site.web.csv_files import as_typed
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.imports.texts import FILE

MOST_BYTES = 5 * 1024 * 1024
MOST_ROWS = 5_000

_MOST_UNPACKED_BYTES = 60 * 1024 * 1024
_MOST_TAGS = 500_000
"""Twice the tags of 5,000 full rows; parsing them takes some seconds."""

_MOST_COLUMNS = 1_000

_LAST_ROW = 1_048_576
"""Excel's last row. A crafted file may name a later one, so that all rows before it are read."""

_MERGED = re.compile(rb"""<(?:\w+:)?mergeCell\s[^>]*?ref=["']([A-Z]+[0-9]+:[A-Z]+[0-9]+)["']""")

_LINE_BREAK = re.compile(r"_x000D_(?:_x000A_|\r?\n)?|_x000A_", re.IGNORECASE)
"""A line break as it stands in files of Excel that other programs have written."""

_UNSEEN = re.compile(
    "[\u00ad\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
    "|\u200d(?![\u2600-\u27bf\U0001f000-\U0001faff])"
)
"""Characters without a width. The one that joins emoji stays there."""

_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


class FileRefused(StaffRefusal):
    """The file cannot be read as a table."""


class BadCell(Enum):
    """A cell without a value of its own."""

    FORMULA = "formula"
    ERROR = "error"
    MERGED = "merged"


Cell = str | BadCell
Row = tuple[int, list[Cell]]
"""A row and its number in the spreadsheet."""


def read_sheet(content: bytes) -> list[Row]:
    """Return the rows of a table that are not blank, the headings first.

    :raises FileRefused: the file is too large, or is not a table.
    """
    if len(content) > MOST_BYTES:
        raise FileRefused(FILE["too_large"])
    if content.startswith(_OLD_EXCEL):
        raise FileRefused(FILE["old_excel"])
    if content.startswith(_ZIP):
        return _read_xlsx(content)
    return _keep_filled_rows(_read_csv(_decode(content)))


def _keep_filled_rows(rows: Iterable[list[Cell]]) -> list[Row]:
    """Return the rows that have a value, with their numbers; refuse too many."""
    filled = []
    for number, row in enumerate(rows, start=1):
        if len(row) > _MOST_COLUMNS:
            raise FileRefused(FILE["too_many_cells"] % {"row": number})
        if any(row):
            filled.append((number, row))
        if len(filled) > MOST_ROWS + 1:
            raise FileRefused(FILE["too_many_rows"])
    return filled


def _read_csv(text: str) -> Iterator[list[Cell]]:
    first = text.lstrip("\r\n").partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for number in count(1):
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise FileRefused(FILE["broken_row"] % {"row": number}) from error
        yield [_clean(cell) for cell in row]


def _clean(text: str) -> str:
    """Return the text of a cell without what nobody sees in it, or what our exports add."""
    return as_typed(_UNSEEN.sub("", _LINE_BREAK.sub("\n", text)))


def _decode(content: bytes) -> str:
    """Decode UTF-8 or UTF-16, else what Excel saves in China."""
    encodings = ["utf-8-sig", "gb18030"]
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    for encoding in encodings:
        try:
            return content.decode(encoding).lstrip("\ufeff")
        except UnicodeDecodeError:
            continue
    raise FileRefused(FILE["encoding"])


def _read_xlsx(content: bytes) -> list[Row]:
    try:
        _check_parts(content)
        return _read_first_sheet(content)
    except FileRefused:
        raise
    except Exception as error:  # openpyxl may raise anything for a broken file
        raise FileRefused(FILE["broken_excel"]) from error


def _check_parts(content: bytes) -> None:
    """Refuse files that would take too much memory or time, before anything is unpacked.

    Python's ``zipfile`` unpacks no more of a part than the size checked here.
    """
    too_much = FileRefused(FILE["too_much"])
    with ZipFile(io.BytesIO(content)) as archive:
        parts = archive.infolist()
        if sum(part.file_size for part in parts) > _MOST_UNPACKED_BYTES:
            raise too_much
        if any(part.filename.endswith("vbaProject.bin") for part in parts):
            raise FileRefused(FILE["macros"])
        tags = 0
        for part in parts:
            xml = archive.read(part)
            tags += xml.count(b"<")
            # No spreadsheet declares entities; with them a small file expands to a large one.
            # Parsers find UTF-16 by themselves, without a mark and after blanks: ignore its NULs.
            if tags > _MOST_TAGS or b"<!DOCTYPE" in xml.replace(b"\0", b""):
                raise too_much


def _read_first_sheet(content: bytes) -> list[Row]:
    # Here, as it takes 5 MB of every process.
    from openpyxl.reader.excel import ExcelReader
    from openpyxl.utils import range_boundaries

    reader = ExcelReader(io.BytesIO(content), read_only=True, keep_links=False)
    reader.read()
    try:
        sheet: Any = reader.wb.worksheets[0]
        sheet.reset_dimensions()  # the size that a file states is often wrong
        rows = sheet.iter_rows(max_row=_LAST_ROW)
        filled = _keep_filled_rows([_as_text(cell) for cell in row] for row in rows)
        parts = (part.target for of, part in reader.parser.find_sheets() if of.name == sheet.title)
        ranges = _MERGED.findall(reader.archive.read(next(parts)))
        _fill_merged(filled, [range_boundaries(it.decode()) for it in ranges])
        return filled
    finally:
        reader.archive.close()


def _fill_merged(rows: list[Row], ranges: Iterable[tuple[int, int, int, int]]) -> None:
    """Repeat the value of merged cells in each row; mark those that span several columns.

    The headings stay as they are.
    """
    numbers = [number for number, _ in rows]
    seen: set[tuple[int, int]] = set()
    for left, top, right, bottom in ranges:
        within = rows[bisect_left(numbers, top) : bisect_right(numbers, bottom)]
        if not within or within[0][0] != top or within[0] is rows[0]:
            continue  # nothing to repeat
        _, first = within[0]
        value = first[left - 1] if left <= len(first) else ""
        for number, cells in within if value else ():
            if (number, left) in seen:
                raise ValueError("merged cells overlap")
            seen.add((number, left))
            cells += [""] * (left - len(cells))
            cells[left - 1] = value if left == right else BadCell.MERGED


def _as_text(cell: Any) -> Cell:
    value = cell.value
    if cell.data_type == "f":
        return BadCell.FORMULA
    if cell.data_type == "e":
        return BadCell.ERROR
    if value is None:
        return ""
    if isinstance(value, float):
        return format(value, ".15g")  # as Excel shows it: 79.9, not 79.900000000000006
    if isinstance(value, dt.datetime):
        nearest = value + dt.timedelta(milliseconds=500)
        return nearest.isoformat(sep=" ", timespec="seconds")
    return _clean(str(value))
