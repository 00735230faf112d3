"""What an import would do, row by row: worked out in a few queries, with nothing written."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any

from django.db import models
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from seckill_site.formatting import money
from vouchers.catalogue.overlaps import on_sale_now, overlapping
from vouchers.catalogue.sales import SaleTerms
from vouchers.catalogue.series import MOST_SALES
from vouchers.imports.rows import ReadRow, problem
from vouchers.lock_objects import lock_vouchers
from vouchers.models import SeckillVoucher, Voucher

NAMED = 3
"""So many other rows, vouchers or sales a warning names; the others it counts."""


COLUMNS = {
    "title": _("Title"),
    "rules": _("Rules"),
    "price_cents": _("Price"),
    "face_value_cents": _("Face value"),
}
_AMOUNTS = ("price_cents", "face_value_cents")


class What(models.TextChoices):
    """What becomes of a row."""

    NEW = "new", pgettext_lazy("import", "new")
    CHANGED = "changed", pgettext_lazy("import", "changed")
    UNCHANGED = "unchanged", pgettext_lazy("import", "unchanged")
    WRONG = "wrong", pgettext_lazy("import", "needs fixing")


@dataclass(frozen=True)
class PlannedRow:
    """One row: ``after`` is what is to be written, ``before`` what stands there now.

    ``voucher`` is the stored one of a row with an id. ``same_rows`` of the file have its title,
    ``same_vouchers`` of the shop too; ``overlaps`` are sales of the voucher in the same window.
    """

    number: int
    what: What
    title: str = ""
    voucher: Voucher | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    terms: SaleTerms | None = None
    problems: tuple[str, ...] = ()
    same_rows: tuple[int, ...] = ()
    same_vouchers: tuple[int, ...] = ()
    overlaps: tuple[int, ...] = ()
    is_over: bool = False

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """The columns that are written, with what stands there before and after.

        The title of a new voucher goes without saying: it names the row.
        """
        return [
            (str(COLUMNS[name]), _shown(name, self.before.get(name)), _shown(name, after))
            for name, after in self.after.items()
            if self.voucher or name != "title"
        ]

    @property
    def warnings(self) -> list[str]:
        """What may be a mistake and keeps nothing from being imported."""
        found = []
        if self.same_rows:
            text = gettext("The same title is in row %(rows)s.")
            found.append(text % {"rows": _some(self.same_rows)})
        if self.same_vouchers:
            text = gettext("There is already a voucher with this title: id %(ids)s.")
            found.append(text % {"ids": _some(self.same_vouchers)})
        if self.overlaps:
            text = gettext("The voucher is already on sale at that time: sale %(ids)s.")
            found.append(text % {"ids": _some(self.overlaps)})
        if self.is_over:
            found.append(gettext("The end of the sale has already passed."))
        return found


@dataclass(frozen=True)
class Plan:
    """All rows of an import."""

    rows: tuple[PlannedRow, ...]

    @cached_property
    def counts(self) -> Counter[What]:
        return Counter(row.what for row in self.rows)

    @property
    def sales(self) -> int:
        return sum(row.terms is not None for row in self.rows)

    @property
    def writes(self) -> bool:
        """Whether it may be written and there is anything to write."""
        has_work = self.counts[What.NEW] or self.counts[What.CHANGED] or self.sales
        return bool(has_work) and not self.counts[What.WRONG]

    @cached_property
    def digest(self) -> str:
        """What tells this plan from another: whatever of it somebody has looked at."""
        text = repr([_looked_at(row) for row in self.rows])
        return hashlib.sha256(text.encode()).hexdigest()


def _looked_at(row: PlannedRow) -> tuple[Any, ...]:
    voucher_id = row.voucher.pk if row.voucher else None
    terms = [str(it) for it in astuple(row.terms)] if row.terms else None
    content = (sorted(row.before.items()), sorted(row.after.items()), terms)
    return (row.number, str(row.what), voucher_id, *content, row.same_vouchers, row.overlaps)


def make_plan(
    *,
    rows: Sequence[ReadRow],
    may_sell: bool,
    now: dt.datetime,
    may_run: bool = True,
    hold: bool = False,
) -> Plan:
    """Return what these rows would do; ``hold`` keeps their vouchers as they are until the commit.

    Three queries, however many rows, and one more for an importer who may not run sales and so not
    change what is on sale just now. ``may_sell`` says whether the importer may make sales.
    """
    planner = _Planner(rows, hold=hold, may_sell=may_sell, now=now)
    if not may_run:
        planner.on_sale = on_sale_now(voucher_ids=planner.stored, now=now)
    return Plan(tuple(planner.rows()))


class _Planner:
    """The rows of a file beside what the shop has."""

    def __init__(
        self, read: Sequence[ReadRow], *, hold: bool, may_sell: bool, now: dt.datetime
    ) -> None:
        self.read, self.may_sell, self.now = read, may_sell, now
        ids = {row.voucher_id for row in read if row.voucher_id}
        stored = lock_vouchers(voucher_ids=ids) if hold else Voucher.objects.filter(pk__in=ids)
        self.stored = {voucher.pk: voucher for voucher in stored}
        self.on_sale: set[int] = set()
        self.first_row_of: dict[int, int] = {}
        self.rows_titled: dict[str, list[int]] = defaultdict(list)
        for row in read:
            self.rows_titled[_plain(row.title)].append(row.number)
            if row.voucher_id:
                self.first_row_of.setdefault(row.voucher_id, row.number)
        self.vouchers_titled = self._vouchers_titled()
        self.sales_of = self._sales_of()

    def rows(self) -> Iterator[PlannedRow]:
        sales = 0
        for row in self.read:
            sales += row.terms is not None
            problems = row.problems or tuple(self._problems(row, sales))
            if problems:
                yield PlannedRow(row.number, What.WRONG, row.title, problems=problems)
            else:
                yield self._planned(row)

    def _planned(self, row: ReadRow) -> PlannedRow:
        voucher = self.stored.get(row.voucher_id or 0)
        after = {name: it for name, it in row.details.items() if not _same(voucher, name, it)}
        title = row.title or (voucher.title if voucher else "")
        what = What.NEW if voucher is None else What.CHANGED if after else What.UNCHANGED
        same_rows = self.rows_titled[_plain(title)] if row.title else []
        same_vouchers = self.vouchers_titled[_plain(title)] if "title" in after else []
        return PlannedRow(
            row.number,
            what,
            title,
            voucher,
            before={name: getattr(voucher, name) for name in after} if voucher else {},
            after=after,
            terms=row.terms,
            same_rows=tuple(number for number in same_rows if number != row.number),
            same_vouchers=tuple(pk for pk in same_vouchers if pk != row.voucher_id),
            overlaps=tuple(sale.pk for sale in self._overlaps(row)),
            is_over=row.terms is not None and row.terms.ends_at <= self.now,
        )

    def _problems(self, row: ReadRow, sales: int) -> Iterator[str]:
        voucher = self.stored.get(row.voucher_id or 0)
        if row.voucher_id and voucher is None:
            text = gettext(
                "There is no voucher with this id. Leave the id empty for a new voucher."
            )
            yield problem("id", text, cell=str(row.voucher_id))
        elif row.voucher_id and self.first_row_of[row.voucher_id] != row.number:
            text = gettext("Row %(row)s is about the same voucher. Combine them into one row.")
            text %= {"row": self.first_row_of[row.voucher_id]}
            yield problem("id", text, cell=str(row.voucher_id))
        if row.voucher_id in self.on_sale and any(
            not _same(voucher, name, it) for name, it in row.details.items()
        ):
            text = gettext(
                "This voucher is on sale now. Only staff who can run sales may change it."
            )
            yield problem("id", text, cell=str(row.voucher_id))
        price, face_value = (_value(row, voucher, name) for name in _AMOUNTS)
        if price is not None and face_value is not None and price > face_value:
            yield problem("price", gettext("The price cannot be above the face value."))
        if row.terms and not self.may_sell:
            text = gettext(
                "You do not have permission to create sales. Leave stock, start, end and "
                "limit empty."
            )
            yield problem("stock", text)
        if row.terms and sales > MOST_SALES:
            text = gettext(
                "One file can create at most %(count)s sales. Put the others in another file."
            )
            yield problem("stock", text % {"count": MOST_SALES})
        if row.terms and any(row.terms.begins_at == it.begins_at for it in self._overlaps(row)):
            text = gettext(
                "The voucher already has a sale that starts at this time. Change one of them."
            )
            yield problem("begins_at", text)

    def _vouchers_titled(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        titles = {row.title for row in self.read if row.title and not row.problems}
        same = Voucher.objects.filter(title__in=titles).order_by("pk").values_list("title", "pk")
        for title, pk in same:
            found[_plain(title)].append(pk)
        return found

    def _sales_of(self) -> dict[int, list[SeckillVoucher]]:
        """Return the sales that may overlap with those of the file, by their voucher."""
        found: dict[int, list[SeckillVoucher]] = defaultdict(list)
        terms = [row.terms for row in self.read if row.terms and row.voucher_id]
        if terms:
            begins_at = min(it.begins_at for it in terms)
            ends_at = max(it.ends_at for it in terms)
            for sale in overlapping(voucher_ids=self.stored, begins_at=begins_at, ends_at=ends_at):
                found[sale.voucher_id].append(sale)
        return found

    def _overlaps(self, row: ReadRow) -> list[SeckillVoucher]:
        terms = row.terms
        if terms is None:
            return []
        sales = self.sales_of[row.voucher_id or 0]
        return [it for it in sales if it.begins_at < terms.ends_at and terms.begins_at < it.ends_at]


def _value(row: ReadRow, voucher: Voucher | None, name: str) -> Any:
    """Return what a row says of a voucher, or where it says nothing, what is stored."""
    return row.details.get(name, getattr(voucher, name, None))


def _same(voucher: Voucher | None, name: str, value: Any) -> bool:
    """Say whether this is stored already; how a spreadsheet ends its lines is no difference."""
    stored = getattr(voucher, name, None)
    if isinstance(stored, str):
        return stored.splitlines() == str(value).splitlines()
    return bool(stored == value)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    return money(value) if name in _AMOUNTS else str(value)


def _plain(title: str) -> str:
    return title.casefold()


def _some(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:NAMED]))
    more = len(numbers) - NAMED
    return named if more <= 0 else gettext("%(named)s and %(more)s more") % {
        "named": named, "more": more,
    }  # fmt: skip
