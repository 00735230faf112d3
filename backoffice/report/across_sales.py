"""The report across sales: figures of a period by day, voucher or merchant.

Every figure is defined in ``docs/report.md``. The number of statements depends on neither the
period nor the orders, and each reads a range of an index. Sales of rehearsals are left out.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum, TextChoices
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from backoffice.report.day_sums import changed_sales, sources
from backoffice.report.period import Period
from backoffice.revenue import EVER_PAID, Revenue
from orders.models import LIVE_STATUSES, DaySum, OrderStatus
from seckill_site.formatting import time_window
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.request_stats import RETENTION, read_live_counts
from vouchers.models import AnswerCount, Merchant, SaleMode, SaleStage, SeckillVoucher, Voucher


class Grouping(TextChoices):
    """What one row of the report is about."""

    DAY = "day", _("Day")
    SALE = "sale", _("Sale")
    VOUCHER = "voucher", _("Voucher")
    MERCHANT = "merchant", _("Merchant")


_ID_OF = {
    Grouping.SALE: "pk",
    Grouping.VOUCHER: "voucher",
    Grouping.MERCHANT: "voucher__merchant",
}
"""The field of a sale with the id of its group."""

NOBODY = 0
"""The key of vouchers without a merchant, which are those of the default one."""


@dataclass
class Figures:
    """The figures of one row, or the total of all; times are those of sales in it."""

    sales: int = 0
    sold_out: int = 0
    fastest: dt.timedelta | None = None
    requests: int = 0
    orders: int = 0
    sold: int = 0
    ever_paid: int = 0
    unused: int = 0
    received_cents: int = 0
    refunded_cents: int = 0

    @property
    def revenue(self) -> Revenue:
        return Revenue(self.received_cents, self.refunded_cents)

    @property
    def conversion(self) -> float | None:
        """The share of orders that were ever paid."""
        return self.ever_paid / self.orders if self.orders else None

    def note_sale(self, *, begins_at: dt.datetime, sold_out_at: dt.datetime | None) -> None:
        self.sales += 1
        if sold_out_at is None:
            return
        self.sold_out += 1
        after = sold_out_at - begins_at
        if after >= dt.timedelta():  # else the start was moved since
            self.fastest = _faster(self.fastest, after)

    def note(self, what: str, *, count: int, cents: int) -> None:
        """Add orders in a state, or money that came in or went back, as a day's sum has them."""
        if what == DaySum.RECEIVED:
            self.received_cents += cents
        elif what == DaySum.RETURNED:
            self.refunded_cents += cents
        else:
            self.orders += count
            self.sold += count if what in LIVE_STATUSES else 0
            self.ever_paid += count if what in EVER_PAID else 0
            self.unused += count if what == OrderStatus.PAID else 0

    def add(self, other: Figures) -> None:
        self.fastest = _faster(self.fastest, other.fastest)
        for name in {it.name for it in fields(self)} - {"fastest"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def _faster(one: dt.timedelta | None, other: dt.timedelta | None) -> dt.timedelta | None:
    return min((it for it in (one, other) if it is not None), default=None)


@dataclass(frozen=True)
class Row:
    """One row: ``key`` is the number of a day or the id of what ``name`` names."""

    key: int
    name: str
    figures: Figures


@dataclass(frozen=True)
class Scope:
    """The period of a report, what its rows are, and which sales are in it."""

    period: Period
    by: Grouping
    voucher_id: int | None = None
    merchant_id: int | None = None

    @property
    def before(self) -> Scope:
        """The period before, by day, for its total."""
        return replace(self, period=self.period.previous, by=Grouping.DAY)

    def of_sales(self, path: str = "") -> Q:
        """Return the condition for rows whose sale, at this path, is in the report."""
        condition = ~Q(**{f"{path}stage": SaleStage.REHEARSAL})
        if self.voucher_id is not None:
            condition &= Q(**{f"{path}voucher": self.voucher_id})
        if self.merchant_id is not None:
            condition &= Q(**{f"{path}voucher__merchant": self.merchant_id})
        return condition

    def key(self, moment: str, sale: str = "seckill_voucher__") -> Combinable:
        """Return the key of a row by its moment, or by its sale at this path."""
        if self.by is Grouping.DAY:
            return self.period.day_number(moment)
        return Coalesce(F(f"{sale}{_ID_OF[self.by]}"), NOBODY)


@dataclass(frozen=True)
class Report:
    """The rows with any figure, and their total.

    ``knows_latest`` is false if Redis did not respond: then the requests of the last minutes are
    missing.
    """

    scope: Scope
    rows: tuple[Row, ...]
    total: Figures
    knows_latest: bool


Groups = defaultdict[int, Figures]


def report_across(*, scope: Scope, now: dt.datetime) -> Report:
    """Return the figures of all sales in a period, also without Redis."""
    groups: Groups = defaultdict(Figures)
    knows_latest = _add_requests(groups, scope, now)
    _add_sales(groups, scope, now)
    changed = changed_sales()
    _add_sums(groups, scope, changed)
    _add_rows(groups, scope, changed)
    rows = _named(groups, scope)
    total = Figures()
    for row in rows:
        total.add(row.figures)
    return Report(scope, tuple(rows), total, knows_latest)


def _add_sales(groups: Groups, scope: Scope, now: dt.datetime) -> None:
    """Add the sales that have started in the period."""
    started = SeckillVoucher.objects.filter(scope.of_sales(), **scope.period.within("begins_at"))
    public = started.filter(stage=SaleStage.PUBLIC, begins_at__lte=now).order_by()
    rows = public.values_list(scope.key("begins_at", sale=""), "begins_at", "sold_out_at", "mode")
    for key, begins_at, sold_out_at, mode in rows:
        sells_out = mode != SaleMode.DRAW  # a draw gives its vouchers to winners, all at once
        groups[key].note_sale(begins_at=begins_at, sold_out_at=sold_out_at if sells_out else None)


def _add_sums(groups: Groups, scope: Scope, changed: Collection[int] | None) -> None:
    """Add orders and money of the sales that have not changed since they were summed up."""
    if changed is None:
        return
    days = {"day__gte": scope.period.first, "day__lte": scope.period.last}
    rows = DaySum.objects.filter(scope.of_sales("seckill_voucher__"), **days)
    sums = _grouped(
        rows.exclude(seckill_voucher__in=changed),
        F("day") if scope.by is Grouping.DAY else scope.key("day"),
        "what",
    )
    for key, what, count, cents in sums.annotate(Sum("count"), Sum("cents")):
        figures = groups[(key - scope.period.first).days if scope.by is Grouping.DAY else key]
        figures.note(what, count=int(count), cents=int(cents))


def _add_rows(groups: Groups, scope: Scope, changed: Collection[int] | None) -> None:
    """Add those of the other sales: orders accepted in the period, and money moved in it."""
    for it in sources():
        rows = it.rows.filter(scope.of_sales(f"{it.sale}__"), **scope.period.within(it.at))
        if changed is not None:
            rows = rows.filter(**{f"{it.sale}__in": changed})
        grouped = _grouped(rows, scope.key(it.at, sale=f"{it.sale}__"), "what")
        for key, what, count, cents in grouped.annotate(Count("pk"), Sum(it.cents)):
            groups[key].note(what, count=count, cents=int(cents))


def _grouped(rows: QuerySet[Any], key: Combinable, *fields: str) -> Any:
    """Return the keys of rows and these fields, for the sums to be annotated."""
    return rows.order_by().annotate(key=key).values_list("key", *fields)


# --- Requests -------------------------------------------------------------------------------------


def _add_requests(groups: Groups, scope: Scope, now: dt.datetime) -> bool:
    """Add the order requests; return whether those of the last minutes are among them."""
    period = scope.period
    storable = SeckillVoucher.objects.filter(scope.of_sales(), ends_at__gt=now - RETENTION)
    sales = dict(storable.order_by().values_list("pk", _ID_OF.get(scope.by, "pk")))
    live, knows_latest = {}, True
    try:
        live = read_live_counts(sale_ids=list(sales), since=period.since, until=period.until)
    except LedgerUnavailable:
        knows_latest = False
    for pk, counts in live.items():
        for it in counts:
            by_day = scope.by is Grouping.DAY
            key = period.number_of(it.at) if by_day else sales[pk] or NOBODY
            groups[key].requests += it.count
    rows = AnswerCount.objects.filter(
        scope.of_sales("seckill_voucher__"), **period.within("at")
    ).exclude(seckill_voucher__in=live)
    for key, count in _grouped(rows, scope.key("at")).annotate(Sum("count")):
        groups[key].requests += count
    return knows_latest


# --- Names ----------------------------------------------------------------------------------------


def _named(groups: Groups, scope: Scope) -> list[Row]:
    """Return the rows with their names: days in order, others by revenue."""
    if scope.by is Grouping.DAY:
        return [Row(it, f"{scope.period.day(it):%Y-%m-%d}", groups[it]) for it in sorted(groups)]
    if scope.by is Grouping.SALE:
        sales = SeckillVoucher.objects.select_related("voucher").in_bulk(groups)
        names = {
            pk: f"{it.voucher.local_title} · {time_window(it.begins_at, it.ends_at)}"
            for pk, it in sales.items()
        }
    elif scope.by is Grouping.VOUCHER:
        names = {pk: it.local_title for pk, it in Voucher.objects.in_bulk(groups).items()}
    else:
        names = {pk: it.name for pk, it in Merchant.objects.in_bulk(groups).items()}
    rows = [Row(key, names.get(key, ""), figures) for key, figures in groups.items()]
    return sorted(rows, key=lambda it: (-it.figures.revenue.net_cents, -it.figures.sold, it.name))
