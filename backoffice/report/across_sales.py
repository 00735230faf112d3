"""The report across sales: figures of a period by day, voucher or merchant.

Every figure is defined in ``docs/report.md``. The number of statements depends on neither the
period nor the orders, and each reads a range of an index. Sales of rehearsals are left out.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum, TextChoices
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from backoffice.report.day_sums import changed_sales
from backoffice.report.period import Period
from backoffice.revenue import EVER_PAID, PAYMENT, REFUND, Revenue
from orders.models import LIVE_STATUSES, DaySum, OrderEvent, OrderStatus, VoucherOrder
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

    def note_orders(self, *, status: str, live: bool, count: int) -> None:
        self.orders += count
        self.sold += count if live else 0
        self.ever_paid += count if status in EVER_PAID else 0
        self.unused += count if status == OrderStatus.PAID else 0

    def add(self, other: Figures) -> None:
        self.fastest = _faster(self.fastest, other.fastest)
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def _faster(one: dt.timedelta | None, other: dt.timedelta | None) -> dt.timedelta | None:
    return min((it for it in (one, other) if it is not None), default=None)


_SUMMED = (
    "sales", "sold_out", "requests", "orders", "sold", "ever_paid", "unused", "received_cents",
    "refunded_cents",
)  # fmt: skip


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
    _add_orders(groups, scope, changed)
    _add_money(groups, scope, changed)
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
    for key, what, count, cents in sums.values_list("key", "what", Sum("count"), Sum("cents")):
        figures = groups[(key - scope.period.first).days if scope.by is Grouping.DAY else key]
        if what == DaySum.RECEIVED:
            figures.received_cents += int(cents)
        elif what == DaySum.RETURNED:
            figures.refunded_cents += int(cents)
        else:
            figures.note_orders(status=what, live=what in LIVE_STATUSES, count=int(count))


def _add_orders(groups: Groups, scope: Scope, changed: Collection[int] | None) -> None:
    """Add the orders of other sales that were accepted in the period, by their present state."""
    rows = VoucherOrder.objects.filter(
        scope.of_sales("seckill_voucher__"),
        _in("seckill_voucher", changed),
        **scope.period.within("accepted_at"),
    )
    grouped = _grouped(rows, scope.key("accepted_at"), "status", "live")
    for key, status, live, count in grouped.values_list("key", "status", "live", Count("pk")):
        groups[key].note_orders(status=status, live=bool(live), count=count)


def _add_money(groups: Groups, scope: Scope, changed: Collection[int] | None) -> None:
    """Add what was received and refunded in the period, by the history of these orders."""
    rows = OrderEvent.objects.filter(
        PAYMENT | REFUND,
        scope.of_sales("order__seckill_voucher__"),
        _in("order__seckill_voucher", changed),
        after__in=(OrderStatus.PAID, OrderStatus.REFUNDING),  # for the index
        **scope.period.within("at"),
    )
    grouped = _grouped(rows, scope.key("at", sale="order__seckill_voucher__"), "after")
    for key, after, cents in grouped.values_list("key", "after", Sum("order__price_cents")):
        if after == OrderStatus.PAID:
            groups[key].received_cents += cents
        else:
            groups[key].refunded_cents += cents


def _in(path: str, sales: Collection[int] | None) -> Q:
    return Q() if sales is None else Q(**{f"{path}__in": sales})


def _grouped(rows: QuerySet[Any], key: Combinable, *fields: str) -> QuerySet[Any, Any]:
    sums: QuerySet[Any, Any] = rows.order_by().annotate(key=key).values("key", *fields)
    return sums


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
    grouped = _grouped(rows, scope.key("at"))
    for key, count in grouped.values_list("key", Sum("count")):
        groups[key].requests += count
    return knows_latest


# --- Names ----------------------------------------------------------------------------------------


def _named(groups: Groups, scope: Scope) -> list[Row]:
    """Return the rows with their names: days in order, others by revenue."""
    if scope.by is Grouping.DAY:
        return [Row(it, f"{scope.period.day(it):%Y-%m-%d}", groups[it]) for it in sorted(groups)]
    if scope.by is Grouping.SALE:
        sales = SeckillVoucher.objects.select_related("voucher").in_bulk(groups)
        names = {pk: _sale_name(it) for pk, it in sales.items()}
    elif scope.by is Grouping.VOUCHER:
        names = {pk: it.local_title for pk, it in Voucher.objects.in_bulk(groups).items()}
    else:
        names = {pk: it.name for pk, it in Merchant.objects.in_bulk(groups).items()}
    rows = [Row(key, names.get(key, ""), figures) for key, figures in groups.items()]
    return sorted(rows, key=lambda it: (-it.figures.revenue.net_cents, -it.figures.sold, it.name))


def _sale_name(sale: SeckillVoucher) -> str:
    return f"{sale.voucher.local_title} · {time_window(sale.begins_at, sale.ends_at)}"
