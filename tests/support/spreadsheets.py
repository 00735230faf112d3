"""Import files as spreadsheets save them."""

from __future__ import annotations

import csv
import io
import zipfile
from typing import Any

from openpyxl import Workbook

ENGLISH = ["id", "title", "rules", "price", "face value", "stock", "begins at", "ends at", "limit"]
CHINESE = ["编号", "标题", "规则", "售价", "面值", "库存", "开始时间", "结束时间", "限购"]
NOODLES = ["", "牛肉面", "One bowl, big", "79.90", "100", "", "", "", ""]
HOTPOT = ["", "Hotpot", "", "¥168", "1,200", "500", "2030-01-01 10:00", "2030-01-01 12:00", "2"]
SHEET = "xl/worksheets/sheet1.xml"


def as_csv(*rows: list[Any], delimiter: str = ",", encoding: str = "utf-8") -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows(rows)
    return file.getvalue().encode(encoding)


def as_xlsx(*rows: list[Any], merged: tuple[str, ...] = ()) -> bytes:
    book = Workbook()
    for row in rows:
        book.active.append([None if cell == "" else cell for cell in row])
    for cells in merged:
        book.active.merge_cells(cells)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def repacked(content: bytes, parts: dict[str, bytes]) -> bytes:
    """Return the workbook with these parts added or replaced."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        kept = {name: old.read(name) for name in old.namelist()}
        for name, part in {**kept, **parts}.items():
            new.writestr(name, part)
    return file.getvalue()


def part(content: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(name)
