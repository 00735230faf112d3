"""The meaning of an import's cells: headings become columns, and texts become values."""

import datetime as dt
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import get_language

from seckill_site.formatting import listed, plain_money
from seckill_site.web.csv_files import harmless
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.catalogue.sales import FACTS, SaleTerms
from vouchers.forms.fields import AmountField, CountField, DayField, MomentField
from vouchers.forms.sale import refuse_end_before_start
from vouchers.imports.spreadsheet import BadCell, Cell, FileRefused, Row
from vouchers.imports.texts import BAD_CELL, FILE, PROBLEM
from vouchers.models import MAX_LIMIT, MAX_STOCK, SaleStage, Voucher

HEADINGS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("headings.toml").read_text("utf-8")
)
"""The columns of a file and their accepted headings; the Chinese one first, then the English."""

DESCRIPTION = ("title", "price", "face_value")
SALE = ("stock", "begins_at", "ends_at")

_COLUMN_OF = {name: column for column, names in HEADINGS.items() for name in names}
_QUOTED = 40
"""The longest part of a wrong cell that its message repeats."""


@dataclass(frozen=True)
class TextRow:
    """A row of text: its number in the sheet, and its cells that are not empty.

    ``bad`` are cells that cannot be read: the column, the kind, the text, each perhaps empty.
    """

    number: int
    cells: Mapping[str, str]
    bad: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class ReadRow:
    """A row's values and problems; ``details`` are the fields of ``VoucherDetails`` it has.

    The columns in ``wrong`` have problems, and no values. It ``sells`` if it is to make a sale.
    """

    number: int
    title: str
    voucher_id: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    terms: SaleTerms | None = None
    sells: bool = False
    problems: tuple[str, ...] = ()
    wrong: frozenset[str] = frozenset()


def text_rows(sheet: Sequence[Row]) -> list[TextRow]:
    """Return the rows below the headings.

    :raises FileRefused: a heading is unknown, repeated or missing, or no row follows.
    """
    if not sheet:
        raise FileRefused(FILE["empty"])
    (_number, headings), *rows = sheet
    columns = _read_headings(headings)
    if not rows:
        raise FileRefused(FILE["no_rows"])
    return [_text_row(number, row, columns) for number, row in rows]


def _read_headings(headings: Sequence[Cell]) -> list[str | None]:
    """Return the column of each heading; None for an empty one."""
    columns = [_find_column(heading) for heading in headings]
    given = [column for column in columns if column]
    missing = [_both_names(name) for name in DESCRIPTION if name not in given]
    if "id" not in given and missing:
        raise FileRefused(FILE["missing_columns"] % {"columns": listed(missing)})
    if len(given) != len(set(given)):
        twice = next(name for name in given if given.count(name) > 1)
        raise FileRefused(FILE["column_twice"] % {"column": _both_names(twice)})
    return columns


def _find_column(heading: Cell) -> str | None:
    name = heading if isinstance(heading, str) else heading.value
    if not name:
        return None
    plain = " ".join(unicodedata.normalize("NFKC", name).replace("_", " ").split())
    column = _COLUMN_OF.get(plain.lower())
    if column is None:
        known = listed(_both_names(name) for name in HEADINGS)
        raise FileRefused(FILE["unknown_column"] % {"heading": name[:_QUOTED], "known": known})
    return column


def _both_names(column: str) -> str:
    """Return both names of a column, the one in the reader's language first."""
    chinese, english = HEADINGS[column][:2]
    is_chinese = (get_language() or "").startswith("zh")
    return f"{chinese} ({english})" if is_chinese else f"{english} ({chinese})"


def _text_row(number: int, row: Sequence[Cell], columns: Sequence[str | None]) -> TextRow:
    cells: dict[str, str] = {}
    bad = []
    for place, cell in enumerate(row):
        column = columns[place] if place < len(columns) else None
        if isinstance(cell, BadCell):
            bad.append((column or "", cell.value, ""))
        elif cell and column:
            cells[column] = cell
        elif cell:
            bad.append(("", "", cell))
    return TextRow(number, cells, bad)


def problem(column: str, text: object, *, cell: str = "") -> str:
    """Return the message about a wrong cell: its column, its text, and what to do."""
    named = _both_names(column) if column else PROBLEM["place"]
    short = cell if len(cell) <= _QUOTED else cell[: _QUOTED - 1] + "…"
    words = {"column": named, "cell": short, "text": text}
    return str(PROBLEM["text_of_cell" if cell else "text"] % words)


class RowForm(forms.Form):
    """One row. In a row with an id, an empty cell keeps the stored value.

    ``unread`` are columns whose cells cannot be read.
    """

    id = CountField(required=False, min_value=1, max_value=LARGEST_ID)
    title = forms.CharField(required=False, max_length=120)
    rules = forms.CharField(required=False, max_length=4000)
    price = AmountField(required=False)
    face_value = AmountField(required=False)
    stock = CountField(required=False, min_value=1, max_value=MAX_STOCK)
    begins_at = MomentField(required=False)
    ends_at = MomentField(required=False)
    limit = CountField(required=False, min_value=1, max_value=MAX_LIMIT)
    merchant = forms.CharField(required=False, max_length=80)
    title_en = forms.CharField(required=False, max_length=120)
    rules_en = forms.CharField(required=False, max_length=4000)
    valid_where = forms.CharField(required=False, max_length=120)
    valid_until = DayField(required=False)

    def __init__(self, cells: Mapping[str, str], *, unread: Set[str]) -> None:
        super().__init__(dict(cells))
        self.given = {name for name, cell in cells.items() if cell} | unread

    def clean(self) -> dict[str, Any]:
        if "id" not in self.given:
            self._require(DESCRIPTION, PROBLEM["new_without"])
        if self.sells:
            self._require(SALE, PROBLEM["sale_without"])
        refuse_end_before_start(self)
        return self.cleaned_data

    def _require(self, names: Sequence[str], text: str) -> None:
        for name in names:
            if name not in self.given:
                self.add_error(name, text)

    @property
    def sells(self) -> bool:
        """Whether the row is to make a sale."""
        return not self.given.isdisjoint((*SALE, "limit"))

    @property
    def details(self) -> dict[str, Any]:
        """The fields of ``VoucherDetails`` that could be read; the merchant by name."""
        data = self.cleaned_data
        columns = {name: name for name in ("title", "rules", *FACTS)}
        columns |= {"price_cents": "price", "face_value_cents": "face_value"}
        given = {name: data.get(column) for name, column in columns.items()}
        return {name: it for name, it in given.items() if it not in (None, "")}

    @property
    def terms(self) -> SaleTerms | None:
        """The terms of the row's draft sale, if it has one whose cells could be read."""
        given = {name: self.cleaned_data.get(name) for name in SALE}
        if None in given.values():
            return None
        limit = self.cleaned_data.get("limit") or 1
        return SaleTerms(**given, limit=limit, stage=SaleStage.DRAFT)  # type: ignore[arg-type]


def read_row(row: TextRow) -> ReadRow:
    """Return the values of a row, and all its problems."""
    unread = {column for column, _kind, _cell in row.bad}
    form = RowForm(row.cells, unread=unread)
    problems = [problem(column, BAD_CELL[kind], cell=cell) for column, kind, cell in row.bad]
    problems += [
        problem(column, text, cell=row.cells.get(column, ""))
        for column, texts in form.errors.items()
        for text in texts
    ]
    return ReadRow(
        row.number,
        row.cells.get("title", ""),
        form.cleaned_data.get("id"),
        form.details,
        form.terms,
        form.sells,
        tuple(problems),
        frozenset(unread.union(form.errors)),
    )


def file_rows(vouchers: Iterable[Voucher], *, chinese: bool) -> Iterator[list[str]]:
    """Yield headings, and vouchers as rows that the import takes and would not change."""
    yield [names[0 if chinese else 1] for names in HEADINGS.values()]
    for it in vouchers:
        cells = {
            "id": it.pk,
            "price": plain_money(it.price_cents),
            "face_value": plain_money(it.face_value_cents),
            "merchant": harmless(it.merchant.name) if it.merchant else "",
            "valid_until": it.valid_until or "",
        }
        texts = ("title", "rules", "title_en", "rules_en", "valid_where")
        cells |= {name: harmless(getattr(it, name)) for name in texts}
        yield [str(cells.get(name, "")) for name in HEADINGS]


def example_rows(*, chinese: bool, now: dt.datetime) -> list[list[str]]:
    """Return the rows of a valid file: headings, a voucher, and a voucher with a sale."""
    begins_at = timezone.localtime(now).replace(hour=10, minute=0) + dt.timedelta(days=7)
    window = [f"{begins_at + dt.timedelta(hours=hours):%Y-%m-%d %H:%M}" for hours in (0, 2)]
    last_day = f"{begins_at + dt.timedelta(days=90):%Y-%m-%d}"
    titles = ("牛肉面代金券", "双人火锅套餐") if chinese else ("Noodles", "Hotpot for two")
    rules = "周末通用" if chinese else "Also at weekends."
    return [
        [names[0 if chinese else 1] for names in HEADINGS.values()],
        ["", titles[0], rules, "79.90", "100", *[""] * 9],
        ["", titles[1], rules, "¥168.00", "¥1,200.00", "500", *window, "1", *[""] * 4, last_day],
    ]
