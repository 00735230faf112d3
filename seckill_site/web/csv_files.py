"""CSV files for spreadsheets: UTF-8 with the mark that Excel needs, every cell quoted.

Spreadsheets guess what a cell is (``docs/exporting.md``): an id of 17 digits would lose its last
ones, and a name that starts with ``=`` would be evaluated. A tab before the id and an apostrophe
before the name keep them as text.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

BYTE_ORDER_MARK = "\ufeff"

Row = Sequence[object]

_FORMULA = re.compile(r"'*(?:\s*[=+\-@＝＋－＠]|[\t\r\n\0])")
_MONTH = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    "sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_LIKE_A_NUMBER = re.compile(
    r"(?=[^0-9０-９]*[0-9０-９])"
    rf"(?:[0-9０-９\s.,:/年月日时分秒()（）%％$¥￥€£-]|{_MONTH}|[ap]m?|上午|下午|e)+",
    re.IGNORECASE,
)
"""Numbers, also negative, percent or money; days and times, with or without names of months."""


def exact(text: str) -> str:
    """Return digits that a spreadsheet does not turn into a number."""
    return f"\t{text}" if text else ""


def unevaluated(text: str) -> str:
    """Return text that a spreadsheet does not evaluate as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def harmless(text: str) -> str:
    """Return typed text that a spreadsheet neither evaluates nor turns into a number."""
    if _FORMULA.match(text):
        return unevaluated(text)
    return exact(text) if _LIKE_A_NUMBER.fullmatch(text) else text


def as_typed(text: str) -> str:
    """Return a text as it was before it was made harmless."""
    return (text[1:] if text.startswith("'") and _FORMULA.match(text) else text).strip()


def csv_parts(headings: Row, chunks: Iterable[Iterable[Row]]) -> Iterator[str]:
    """Return a file in parts: the headings, and one for each chunk of rows."""
    yield BYTE_ORDER_MARK + _lines([headings])
    yield from map(_lines, chunks)


def _lines(rows: Iterable[Row]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()


def csv_response(parts: Iterable[str], *, name: str) -> HttpResponseBase:
    """Return a download that no shared cache keeps, and that is streamed if it is an iterator."""
    kind = StreamingHttpResponse if isinstance(parts, Iterator) else HttpResponse
    return kind(
        parts,
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "private, no-store",
            "X-Accel-Buffering": "no",  # nginx: do not buffer the file
        },
    )
