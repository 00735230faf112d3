"""The plan of an import, row by row: computed with a few queries, without writing."""

import datetime as dt
import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import pgettext_lazy

from seckill_site.formatting import listed, money
from vouchers.catalogue.history import field_label
from vouchers.catalogue.listing import running_sales
from vouchers.catalogue.sales import SaleTerms, VoucherOnSale, is_stored
from vouchers.catalogue.series import MOST_SALES, overlapping_sales
from vouchers.catalogue.unused import FallsDue, falls_due, is_earlier
from vouchers.forms.fields import validate_last_day
from vouchers.imports.rows import ReadRow, problem
from vouchers.imports.texts import PROBLEM, WARNING
from vouchers.lock_objects import lock_vouchers
from vouchers.models import Merchant, SeckillVoucher, Voucher

NAMED = 3
"""The most rows, vouchers or sales that a warning names; it counts the others."""

_AMOUNTS = ("price_cents", "face_value_cents")


@dataclass(frozen=True)
class Importer:
    """A member of staff: ``may_sell`` to make sales, ``may_run`` to change what is on sale now."""

    user_id: int
    may_sell: bool
    may_run: bool = True
    may_add_merchants: bool = False


class RowOutcome(models.TextChoices):
    """The outcome of an import for a row."""

    NEW = "new", pgettext_lazy("import", "new")
    CHANGED = "changed", pgettext_lazy("import", "changed")
    UNCHANGED = "unchanged", pgettext_lazy("import", "unchanged")
    WRONG = "wrong", pgettext_lazy("import", "needs fixing")


@dataclass(frozen=True)
class PlannedRow:
    """One row: ``after`` replaces ``before``, in ``voucher`` if the row has an id.

    Neither ``clashes`` nor a sale that is over prevents the import. A new price in the ``running``
    sales of the voucher needs a reason, as does what is ``due`` by a new last day.
    """

    number: int
    what: RowOutcome
    title: str = ""
    voucher: Voucher | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    terms: SaleTerms | None = None
    problems: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()
    is_over: bool = False
    running: tuple[SeckillVoucher, ...] = ()
    due: FallsDue | None = None

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """The columns that are written, before and after, without the title of a new voucher."""
        return [
            (field_label(name), _as_text(name, self.before.get(name)), _as_text(name, after))
            for name, after in self.after.items()
            if self.voucher or name != "title"
        ]

    @property
    def warnings(self) -> list[str]:
        """Possible mistakes; the row can be imported."""
        return [*self.clashes, *([str(WARNING["is_over"])] if self.is_over else [])]


@dataclass(frozen=True)
class Plan:
    """All rows of an import, and the merchants that they name and the shop does not have."""

    rows: tuple[PlannedRow, ...]
    unknown_merchants: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> Counter[RowOutcome]:
        return Counter(row.what for row in self.rows)

    @property
    def sales(self) -> int:
        return sum(row.terms is not None for row in self.rows)

    @property
    def needs_reason(self) -> bool:
        return bool(self.due) or any(row.running for row in self.rows)

    @cached_property
    def due(self) -> FallsDue | None:
        """What all rows together make due."""
        dues = [row.due for row in self.rows if row.due]
        return FallsDue(*map(sum, zip(*dues, strict=True))) if dues else None

    @property
    def writes(self) -> bool:
        """Whether the plan may be written and has anything to write."""
        has_work = self.counts[RowOutcome.NEW] or self.counts[RowOutcome.CHANGED] or self.sales
        return bool(has_work) and not self.counts[RowOutcome.WRONG]

    @cached_property
    def digest(self) -> str:
        """The hash of everything that a preview of the plan shows."""
        shown = []
        for row in self.rows:
            voucher_id = row.voucher.pk if row.voucher else None
            terms = [str(it) for it in astuple(row.terms)] if row.terms else None
            content = (sorted(row.before.items()), sorted(row.after.items()), terms)
            asked = ([sale.pk for sale in row.running], row.due and row.due.size)
            shown.append((row.number, str(row.what), voucher_id, *content, row.clashes, *asked))
        return hashlib.sha256(repr(shown).encode()).hexdigest()


def make_plan(
    *, rows: Sequence[ReadRow], by: Importer, now: dt.datetime, hold: bool = False
) -> Plan:
    """Return what these rows would do; ``hold`` locks their vouchers until the commit.

    Six queries, however many rows.
    """
    planner = _Planner(rows, by=by, now=now, hold=hold)
    return Plan(tuple(planner.rows()), planner.unknown_merchants())


class _Planner:
    """The rows of a file, and the vouchers and sales that the shop has."""

    def __init__(
        self, read: Sequence[ReadRow], *, by: Importer, now: dt.datetime, hold: bool
    ) -> None:
        self.read, self.by, self.now = read, by, now
        ids = {row.voucher_id for row in read if row.voucher_id}
        stored = lock_vouchers(voucher_ids=ids) if hold else Voucher.objects.filter(pk__in=ids)
        self.stored = {voucher.pk: voucher for voucher in stored}
        merchants = {merchant.pk: merchant for merchant in Merchant.objects.all()}
        self.merchants = {merchant.name: merchant for merchant in merchants.values()}
        self.default_merchant = merchants[min(merchants)] if merchants else None
        spellings = Counter(map(_folded, self.merchants))
        self.merchants_folded = {
            folded: it
            for name, it in self.merchants.items()
            if spellings[folded := _folded(name)] == 1
        }
        for voucher in stored:
            voucher.merchant = merchants.get(voucher.merchant_id or 0)
        self.running: dict[int, list[SeckillVoucher]] = defaultdict(list)
        for sale in running_sales(voucher_ids=self.stored, now=now):
            self.running[sale.voucher_id].append(sale)
        earlier = [
            row.voucher_id
            for row in read
            if (it := self.stored.get(row.voucher_id or 0))
            and is_earlier(it, row.details.get("valid_until"))
        ]
        self.due = falls_due(Q(voucher__in=earlier, refund_unused=True)) if earlier else {}
        self.first_row_of = {row.voucher_id: row.number for row in reversed(read)}
        self.rows_titled = _by_title((row.title, row.number) for row in read)
        titles = {row.title for row in read if row.title and not row.problems}
        same = Voucher.objects.filter(title__in=titles).order_by("pk").values_list("title", "pk")
        self.vouchers_titled = _by_title(same)
        windows = [
            (row.number, row.voucher_id, row.terms) for row in read if row.terms and row.voucher_id
        ]
        overlapping = overlapping_sales([(voucher_id, terms) for _, voucher_id, terms in windows])
        numbers = (number for number, _, _ in windows)
        self.overlaps = defaultdict(list, zip(numbers, overlapping, strict=True))

    def rows(self) -> Iterator[PlannedRow]:
        sales = 0
        for row in self.read:
            sales += row.sells
            problems = (*row.problems, *self._problems(row, sales))
            if problems:
                yield PlannedRow(row.number, RowOutcome.WRONG, row.title, problems=problems)
            else:
                yield self._plan_row(row)

    def _plan_row(self, row: ReadRow) -> PlannedRow:
        voucher = self.stored.get(row.voucher_id or 0)
        details = self._details(row).items()
        after = {name: it for name, it in details if not is_stored(voucher, name, it)}
        what = RowOutcome.CHANGED if after else RowOutcome.UNCHANGED
        return PlannedRow(
            row.number,
            what if voucher else RowOutcome.NEW,
            row.title or (voucher.title if voucher else ""),
            voucher,
            before={name: getattr(voucher, name) for name in after} if voucher else {},
            after=after,
            terms=row.terms,
            clashes=tuple(self._clashes(row, after)),
            is_over=row.terms is not None and row.terms.ends_at <= self.now,
            running=tuple(self.running[voucher.pk]) if voucher and "price_cents" in after else (),
            due=self.due.get(voucher.pk) if voucher else None,
        )

    def unknown_merchants(self) -> tuple[str, ...]:
        """Return the names that no merchant has, in the order of the rows."""
        named = (self._details(row).get("merchant") for row in self.read)
        return tuple(dict.fromkeys(it for it in named if isinstance(it, str)))

    def _details(self, row: ReadRow) -> dict[str, Any]:
        """Return the details of a row, with its merchant instead of the name, if there is one.

        A new voucher without a name has the default merchant, so that the preview says so.
        """
        name = row.details.get("merchant", "")
        merchant = self.merchants.get(name) or self.merchants_folded.get(_folded(name))
        if not name and row.voucher_id is None:
            merchant = self.default_merchant
        known = {"merchant": merchant} if merchant else {}
        return {**row.details, **known}

    def _clashes(self, row: ReadRow, after: Mapping[str, Any]) -> Iterator[str]:
        title = row.title.casefold()
        rows = [number for number in self.rows_titled[title] if number != row.number]
        if row.title and rows:
            yield WARNING["same_title"] % {"rows": _name_some(rows)}
        vouchers = [pk for pk in self.vouchers_titled[title] if pk != row.voucher_id]
        if "title" in after and vouchers:
            yield WARNING["title_known"] % {"ids": _name_some(vouchers)}
        if overlaps := self.overlaps[row.number]:
            yield WARNING["overlap"] % {"ids": _name_some([sale.pk for sale in overlaps])}

    def _merchant_problems(self, merchant: Merchant | str | None) -> Iterator[str]:
        if isinstance(merchant, str):
            yield problem("merchant", PROBLEM["no_merchant"], cell=merchant)

    def _last_day_problems(self, row: ReadRow, voucher: Voucher | None) -> Iterator[str]:
        day = row.details.get("valid_until")
        if day is None or is_stored(voucher, "valid_until", day):
            return
        try:
            validate_last_day(day, today=timezone.localdate(self.now))
        except ValidationError as error:
            yield problem("valid_until", " ".join(error.messages), cell=str(day))

    def _problems(self, row: ReadRow, sales: int) -> Iterator[str]:
        voucher = self.stored.get(row.voucher_id or 0)
        if row.voucher_id and voucher is None:
            yield problem("id", PROBLEM["no_voucher"], cell=str(row.voucher_id))
        elif row.voucher_id and self.first_row_of[row.voucher_id] != row.number:
            text = PROBLEM["same_voucher"] % {"row": self.first_row_of[row.voucher_id]}
            yield problem("id", text, cell=str(row.voucher_id))
        may_change = self.by.may_run or row.voucher_id not in self.running
        details = self._details(row)
        if not may_change and any(not is_stored(voucher, *it) for it in details.items()):
            yield problem("id", str(VoucherOnSale()), cell=str(row.voucher_id))
        yield from self._merchant_problems(details.get("merchant"))
        yield from self._last_day_problems(row, voucher)
        price, face_value = (
            row.details.get(name, getattr(voucher, name, None)) for name in _AMOUNTS
        )
        is_read = row.wrong.isdisjoint(("price", "face_value"))
        if is_read and None not in (price, face_value) and price > face_value:
            yield problem("price", PROBLEM["above_face_value"])
        if row.sells and not self.by.may_sell:
            yield problem("stock", PROBLEM["may_not_sell"])
        if row.sells and sales > MOST_SALES:
            yield problem("stock", PROBLEM["too_many_sales"] % {"count": MOST_SALES})
        if row.terms and any(
            row.terms.begins_at == it.begins_at for it in self.overlaps[row.number]
        ):
            yield problem("begins_at", PROBLEM["same_start"])


def _folded(name: str) -> str:
    """Return a name without its case, and with composed letters: macOS writes é as two."""
    return unicodedata.normalize("NFKC", name).casefold()


def _as_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    return money(value) if name in _AMOUNTS else str(value)


def _by_title(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_title: dict[str, list[int]] = defaultdict(list)
    for title, number in pairs:
        by_title[title.casefold()].append(number)
    return by_title


def _name_some(numbers: Sequence[int]) -> str:
    named = listed(map(str, numbers[:NAMED]))
    more = len(numbers) - NAMED
    if more <= 0:
        return named
    return str(WARNING["more"] % {"named": named, "more": more})
