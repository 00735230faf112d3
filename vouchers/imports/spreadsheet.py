"""Tables read from spreadsheet files: CSV as Excel saves it, and XLSX.

Every cell becomes text as the spreadsheet shows it. Nothing in a file is ever evaluated.
"""

import codecs
import csv
import datetime as dt
import io
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import count
from typing import Any
from zipfile import ZipFile

from django.utils.translation import gettext

from vouchers.catalogue.staff_texts import StaffRefusal

MOST_BYTES = 5 * 1024 * 1024
MOST_ROWS = 5_000

_MOST_UNPACKED_BYTES = 60 * 1024 * 1024
_MOST_TAGS = 500_000
"""Twice the tags of 5,000 full rows; parsing them takes some seconds."""

_MOST_COLUMNS = 1_000

_LAST_ROW = 1_048_576
"""Excel's last row. A crafted file may name a later one, so that all rows before it are read."""

_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


class FileRefused(StaffRefusal):
    """The file cannot be read as a table."""


class BadCell(Enum):
    """A cell without a value of its own."""

    FORMULA = "formula"
    ERROR = "error"


Cell = str | BadCell
Row = tuple[int, list[Cell]]
"""A row and its number in the spreadsheet."""


def read_sheet(content: bytes) -> list[Row]:
    """Return the rows of a table that are not blank, the headings first.

    :raises FileRefused: the file is too large, or is not a table.
    """
    if len(content) > MOST_BYTES:
        raise FileRefused(gettext("The file is larger than 5 MB. Split it."))
    if content.startswith(_OLD_EXCEL):
        text = gettext("This is an old or protected Excel file. Save it as .xlsx or CSV instead.")
        raise FileRefused(text)
    if content.startswith(_ZIP):
        return _read_xlsx(content)
    return _keep_filled_rows(_read_csv(_decode(content)))


def _keep_filled_rows(rows: Iterable[list[Cell]]) -> list[Row]:
    """Return the rows that have a value, with their numbers; refuse too many."""
    filled = []
    for number, row in enumerate(rows, start=1):
        if len(row) > _MOST_COLUMNS:
            raise FileRefused(gettext("Row %(row)s has too many cells.") % {"row": number})
        if any(row):
            filled.append((number, row))
        if len(filled) > MOST_ROWS + 1:
            raise FileRefused(gettext("The file has more than 5,000 rows. Split it."))
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
            text = gettext(
                "Row %(row)s cannot be read: a quotation mark is unclosed or misplaced, "
                "or a cell is far too long."
            )
            raise FileRefused(text % {"row": number}) from error
        yield [cell.strip() for cell in row]


def _decode(content: bytes) -> str:
    """Decode UTF-8 or UTF-16, else what Excel saves in China."""
    encodings = ["utf-8-sig", "gb18030"]
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    for encoding in encodings:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise FileRefused(
        gettext("This is neither a CSV file in UTF-8 or GBK nor an Excel file (.xlsx).")
    )


def _read_xlsx(content: bytes) -> list[Row]:
    try:
        _check_parts(content)
        return _read_first_sheet(content)
    except FileRefused:
        raise
    except Exception as error:  # openpyxl may raise anything for a broken file
        text = gettext("This Excel file cannot be read. Save it again in Excel, or as CSV.")
        raise FileRefused(text) from error


def _check_parts(content: bytes) -> None:
    """Refuse files that would take too much memory or time, before anything is unpacked.

    Python's ``zipfile`` unpacks no more of a part than the size checked here.
    """
    too_much = FileRefused(gettext("This Excel file contains too much data. Save it as CSV."))
    with ZipFile(io.BytesIO(content)) as archive:
        parts = archive.infolist()
        if sum(part.file_size for part in parts) > _MOST_UNPACKED_BYTES:
            raise too_much
        if any(part.filename.endswith("vbaProject.bin") for part in parts):
            raise FileRefused(gettext("This Excel file contains macros. Save it as .xlsx or CSV."))
        tags = 0
        for part in parts:
            xml = archive.read(part)
            tags += xml.count(b"<")
            # No spreadsheet declares entities; with them a small file expands to a large one.
            # Parsers find UTF-16 by themselves, without a mark and after blanks: ignore its NULs.
            if tags > _MOST_TAGS or b"<!DOCTYPE" in xml.replace(b"\0", b""):
                raise too_much


def _read_first_sheet(content: bytes) -> list[Row]:
    from openpyxl import load_workbook  # here, as it takes 5 MB of every process

    workbook = load_workbook(io.BytesIO(content), read_only=True, keep_links=False)
    try:
        sheet: Any = workbook.worksheets[0]
        sheet.reset_dimensions()  # the size that a file states is often wrong
        rows = sheet.iter_rows(max_row=_LAST_ROW)
        return _keep_filled_rows([_as_text(cell) for cell in row] for row in rows)
    finally:
        workbook.close()


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
    return str(value).strip()
