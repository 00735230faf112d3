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
from django.utils import timezone
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from seckill_site.formatting import money
from vouchers.catalogue.listing import on_sale_now
from vouchers.catalogue.sales import SaleTerms, VoucherOnSale, is_stored
from vouchers.catalogue.series import MOST_SALES, overlapping_sales
from vouchers.forms.fields import validate_last_day
from vouchers.imports.rows import ReadRow, problem
from vouchers.lock_objects import lock_vouchers
from vouchers.models import Merchant, Voucher

NAMED = 3
"""The most rows, vouchers or sales that a warning names; it counts the others."""

COLUMNS = {
    "title": _("Title"),
    "rules": _("Rules"),
    "price_cents": _("Price"),
    "face_value_cents": _("Face value"),
    "merchant": _("Merchant"),
    "title_en": _("English title"),
    "rules_en": _("English rules"),
    "valid_where": _("Where it is valid"),
    "valid_until": _("Valid until"),
}
_AMOUNTS = ("price_cents", "face_value_cents")


@dataclass(frozen=True)
class Importer:
    """A member of staff: ``may_sell`` to make sales, ``may_run`` to change what is on sale now."""

    user_id: int
    may_sell: bool
    may_run: bool = True


class RowOutcome(models.TextChoices):
    """The outcome of an import for a row."""

    NEW = "new", pgettext_lazy("import", "new")
    CHANGED = "changed", pgettext_lazy("import", "changed")
    UNCHANGED = "unchanged", pgettext_lazy("import", "unchanged")
    WRONG = "wrong", pgettext_lazy("import", "needs fixing")


@dataclass(frozen=True)
class PlannedRow:
    """One row: ``after`` replaces ``before``, in ``voucher`` if the row has an id.

    Neither ``clashes`` nor a sale that is over prevents the import.
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

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """The columns that are written, before and after, without the title of a new voucher."""
        return [
            (str(COLUMNS[name]), _as_text(name, self.before.get(name)), _as_text(name, after))
            for name, after in self.after.items()
            if self.voucher or name != "title"
        ]

    @property
    def warnings(self) -> list[str]:
        """Possible mistakes; the row can be imported."""
        over = [gettext("The end of the sale has already passed.")] if self.is_over else []
        return [*self.clashes, *over]


@dataclass(frozen=True)
class Plan:
    """All rows of an import."""

    rows: tuple[PlannedRow, ...]

    @cached_property
    def counts(self) -> Counter[RowOutcome]:
        return Counter(row.what for row in self.rows)

    @property
    def sales(self) -> int:
        return sum(row.terms is not None for row in self.rows)

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
            shown.append((row.number, str(row.what), voucher_id, *content, row.clashes))
        return hashlib.sha256(repr(shown).encode()).hexdigest()


def make_plan(
    *, rows: Sequence[ReadRow], by: Importer, now: dt.datetime, hold: bool = False
) -> Plan:
    """Return what these rows would do; ``hold`` locks their vouchers until the commit.

    Four queries, however many rows, and one more for an importer who may not run sales.
    """
    return Plan(tuple(_Planner(rows, by=by, now=now, hold=hold).rows()))


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
        spellings = Counter(map(_folded, self.merchants))
        self.merchants_folded = {
            folded: it
            for name, it in self.merchants.items()
            if spellings[folded := _folded(name)] == 1
        }
        for voucher in stored:
            voucher.merchant = merchants.get(voucher.merchant_id or 0)
        self.on_sale = set() if by.may_run else on_sale_now(voucher_ids=self.stored, now=now)
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
            sales += row.terms is not None
            problems = row.problems or tuple(self._problems(row, sales))
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
        )

    def _details(self, row: ReadRow) -> dict[str, Any]:
        """Return the details of a row, with its merchant instead of the name, if there is one."""
        name = row.details.get("merchant", "")
        merchant = self.merchants.get(name) or self.merchants_folded.get(_folded(name))
        known = {"merchant": merchant} if merchant else {}
        return {**row.details, **known}

    def _clashes(self, row: ReadRow, after: Mapping[str, Any]) -> Iterator[str]:
        title = row.title.casefold()
        rows = [number for number in self.rows_titled[title] if number != row.number]
        if row.title and rows:
            text = gettext("The same title is in row %(rows)s.")
            yield text % {"rows": _name_some(rows)}
        vouchers = [pk for pk in self.vouchers_titled[title] if pk != row.voucher_id]
        if "title" in after and vouchers:
            text = gettext("There is already a voucher with this title: id %(ids)s.")
            yield text % {"ids": _name_some(vouchers)}
        if overlaps := self.overlaps[row.number]:
            text = gettext("The voucher is already on sale at that time: sale %(ids)s.")
            yield text % {"ids": _name_some([sale.pk for sale in overlaps])}

    def _merchant_problems(self, row: ReadRow) -> Iterator[str]:
        if isinstance(name := self._details(row).get("merchant"), str):
            text = gettext(
                "There is no merchant of this name. Add it under Merchants, or leave the cell "
                "empty for the default merchant."
            )
            yield problem("merchant", text, cell=name)

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
            text = gettext(
                "There is no voucher with this id. Leave the id empty for a new voucher."
            )
            yield problem("id", text, cell=str(row.voucher_id))
        elif row.voucher_id and self.first_row_of[row.voucher_id] != row.number:
            text = gettext("Row %(row)s is about the same voucher. Combine them into one row.")
            text %= {"row": self.first_row_of[row.voucher_id]}
            yield problem("id", text, cell=str(row.voucher_id))
        if row.voucher_id in self.on_sale and any(
            not is_stored(voucher, name, it) for name, it in self._details(row).items()
        ):
            yield problem("id", str(VoucherOnSale()), cell=str(row.voucher_id))
        yield from self._merchant_problems(row)
        yield from self._last_day_problems(row, voucher)
        price, face_value = (
            row.details.get(name, getattr(voucher, name, None)) for name in _AMOUNTS
        )
        if price is not None and face_value is not None and price > face_value:
            yield problem("price", gettext("The price cannot be above the face value."))
        if row.terms and not self.by.may_sell:
            text = gettext(
                "You do not have permission to create sales. Leave stock, start, end and limit "
                "empty."
            )
            yield problem("stock", text)
        if row.terms and sales > MOST_SALES:
            text = gettext(
                "One file can create at most %(count)s sales. Put the others in another file."
            )
            yield problem("stock", text % {"count": MOST_SALES})
        if row.terms and any(
            row.terms.begins_at == it.begins_at for it in self.overlaps[row.number]
        ):
            text = gettext(
                "The voucher already has a sale that starts at this time. Change one of them."
            )
            yield problem("begins_at", text)


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
    named = ", ".join(map(str, numbers[:NAMED]))
    more = len(numbers) - NAMED
    if more <= 0:
        return named
    return gettext("%(named)s and %(more)s more") % {"named": named, "more": more}
