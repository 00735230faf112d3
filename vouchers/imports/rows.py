"""The meaning of an import's cells: headings become columns, and texts become values."""

import datetime as dt
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.web.url_converters import LARGEST_ID
from vouchers.catalogue.sales import FACTS, SaleTerms
from vouchers.forms.fields import AmountField, CountField, DayField, MomentField
from vouchers.forms.sale import refuse_end_before_start
from vouchers.imports.spreadsheet import BadCell, Cell, FileRefused, Row
from vouchers.models import MAX_LIMIT, MAX_STOCK, SaleStage

HEADINGS: dict[str, tuple[str, ...]] = {
    "id": ("编号", "id"),
    "title": ("标题", "title"),
    "rules": ("规则", "rules", "使用规则"),
    "price": ("售价", "price", "价格"),
    "face_value": ("面值", "face value"),
    "stock": ("库存", "stock"),
    "begins_at": ("开始时间", "begins at"),
    "ends_at": ("结束时间", "ends at"),
    "limit": ("限购", "limit", "每人限购"),
    "merchant": ("商家", "merchant", "shop", "店铺"),
    "title_en": ("英文标题", "english title"),
    "rules_en": ("英文规则", "english rules"),
    "valid_where": ("适用地点", "valid where", "适用门店"),
    "valid_until": ("有效期至", "valid until", "有效期"),
}
"""The columns of a file and their accepted headings; the Chinese one first, then the English."""

DESCRIPTION = ("title", "price", "face_value")
SALE = ("stock", "begins_at", "ends_at")

_COLUMN_OF = {name: column for column, names in HEADINGS.items() for name in names}
_BAD_CELLS = {
    BadCell.FORMULA: _("This is a formula, and formulas are not calculated. Enter its value."),
    BadCell.ERROR: _("This is a spreadsheet error. Enter a value."),
}
_QUOTED = 40
"""The longest part of a wrong cell that its message repeats."""


@dataclass(frozen=True)
class TextRow:
    """A row of text: its number in the sheet, and its cells that are not empty."""

    number: int
    cells: Mapping[str, str]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadRow:
    """A row's values, or its problems; ``details`` are the fields of ``VoucherDetails`` it has."""

    number: int
    title: str
    voucher_id: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    terms: SaleTerms | None = None
    problems: tuple[str, ...] = ()


def text_rows(sheet: Sequence[Row]) -> list[TextRow]:
    """Return the rows below the headings.

    :raises FileRefused: a heading is unknown, repeated or missing, or no row follows.
    """
    if not sheet:
        raise FileRefused(gettext("The file is empty."))
    (_number, headings), *rows = sheet
    columns = _read_headings(headings)
    if not rows:
        raise FileRefused(gettext("There is nothing below the headings."))
    return [_text_row(number, row, columns) for number, row in rows]


def _read_headings(headings: Sequence[Cell]) -> list[str | None]:
    """Return the column of each heading; None for an empty one."""
    columns = [_find_column(heading) for heading in headings]
    given = [column for column in columns if column]
    missing = [_both_names(name) for name in DESCRIPTION if name not in given]
    if "id" not in given and missing:
        text = gettext(
            "These columns are missing: %(columns)s. Without a column “id” each row is a new "
            "voucher."
        )
        raise FileRefused(text % {"columns": ", ".join(missing)})
    if len(given) != len(set(given)):
        twice = next(name for name in given if given.count(name) > 1)
        text = gettext("The column “%(column)s” appears twice.")
        raise FileRefused(text % {"column": _both_names(twice)})
    return columns


def _find_column(heading: Cell) -> str | None:
    name = heading if isinstance(heading, str) else heading.value
    if not name:
        return None
    plain = " ".join(unicodedata.normalize("NFKC", name).replace("_", " ").split())
    column = _COLUMN_OF.get(plain.lower())
    if column is None:
        text = gettext("Unknown column “%(heading)s”. Known columns: %(known)s.")
        known = ", ".join(_both_names(name) for name in HEADINGS)
        raise FileRefused(text % {"heading": name[:_QUOTED], "known": known})
    return column


def _both_names(column: str) -> str:
    """Return both names of a column, the one in the reader's language first."""
    chinese, english = HEADINGS[column][:2]
    is_chinese = (get_language() or "").startswith("zh")
    return f"{chinese} ({english})" if is_chinese else f"{english} ({chinese})"


def _text_row(number: int, row: Sequence[Cell], columns: Sequence[str | None]) -> TextRow:
    cells: dict[str, str] = {}
    problems = []
    for place, cell in enumerate(row):
        column = columns[place] if place < len(columns) else None
        if isinstance(cell, BadCell):
            problems.append(problem(column, _BAD_CELLS[cell]))
        elif cell and column:
            cells[column] = cell
        elif cell:
            text = gettext("This cell has no heading. Put text with commas in quotation marks.")
            problems.append(problem(None, text, cell=cell))
    return TextRow(number, cells, tuple(problems))


def problem(column: str | None, text: object, *, cell: str = "") -> str:
    """Return the message about a wrong cell: its column, its text, and what to do."""
    named = _both_names(column) if column else gettext("to the right of the headings")
    if not cell:
        return gettext("%(column)s: %(text)s") % {"column": named, "text": text}
    short = cell if len(cell) <= _QUOTED else cell[: _QUOTED - 1] + "…"
    words = {"column": named, "cell": short, "text": text}
    return gettext("%(column)s, “%(cell)s”: %(text)s") % words


class RowForm(forms.Form):
    """One row. In a row with an id, an empty cell keeps the stored value."""

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

    def clean(self) -> dict[str, Any]:
        if not self.data.get("id"):
            text = gettext("Fill this in: a row without an id is a new voucher.")
            self._require(DESCRIPTION, text)
        if any(self.data.get(name) for name in (*SALE, "limit")):
            text = gettext("Fill this in too, or leave stock, start, end and limit empty.")
            self._require(SALE, text)
        refuse_end_before_start(self)
        return self.cleaned_data

    def _require(self, names: Sequence[str], text: str) -> None:
        for name in names:
            if not self.data.get(name):
                self.add_error(name, text)

    @property
    def details(self) -> dict[str, Any]:
        """The fields of ``VoucherDetails`` in the row; its merchant by name."""
        data = self.cleaned_data
        given = {name: data[name] for name in ("title", "rules", *FACTS)}
        cents = {"price_cents": data["price"], "face_value_cents": data["face_value"]}
        return {name: it for name, it in (given | cents).items() if it not in (None, "")}

    @property
    def terms(self) -> SaleTerms | None:
        """The terms of the row's draft sale, if it has one."""
        data = self.cleaned_data
        if data["stock"] is None:
            return None
        return SaleTerms(
            stock=data["stock"],
            begins_at=data["begins_at"],
            ends_at=data["ends_at"],
            limit=data["limit"] or 1,
            stage=SaleStage.DRAFT,
        )


def read_row(row: TextRow) -> ReadRow:
    """Return the values of a row, or its problems."""
    title = row.cells.get("title", "")
    if row.problems:
        return ReadRow(row.number, title, problems=row.problems)
    form = RowForm(dict(row.cells))
    if form.is_valid():
        return ReadRow(row.number, title, form.cleaned_data["id"], form.details, form.terms)
    problems = [
        problem(column, text, cell=row.cells.get(column, ""))
        for column, texts in form.errors.items()
        for text in texts
    ]
    return ReadRow(row.number, title, problems=tuple(problems))


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
