"""Sums by sale and day, so that a report over a year reads thousands of rows and not millions.

A pass sums up anew the sales whose orders have changed since the last one. Reports read these sums
and, of what has changed since, the orders themselves: they are never out of date (ADR 0050).
"""

import datetime as dt
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, takewhile
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Case, Count, F, Max, Min, QuerySet, Sum, Value, When
from django.utils import timezone

from backoffice.report.period import Period
from backoffice.revenue import PAYMENT, REFUND
from orders.models import DaySum, OrderEvent, OrderStatus, VoucherOrder
from vouchers.inventory.passes import Passes
from vouchers.models import SaleStage, SeckillVoucher

SETTLED_AFTER = dt.timedelta(minutes=10)
"""Changes are in the order of their ids to within a transaction, which is far shorter."""

MOST_CHANGES, AT_ONCE = 100_000, 5_000
"""The most changes that a pass looks at, and orders that a statement names."""

_passes = Passes("sum_days")


class Source(NamedTuple):
    """Rows to sum up by ``what`` they are; the others name their sale, moment and price."""

    rows: QuerySet[Any]
    sale: str
    at: str
    cents: str


def sources() -> tuple[Source, Source]:
    """Return what is summed up: orders by their present state, and money by their history."""
    orders = VoucherOrder.objects.order_by().annotate(what=F("status"))
    was_paid = When(after=OrderStatus.PAID, then=Value(DaySum.RECEIVED))
    money = OrderEvent.objects.order_by().filter(
        PAYMENT | REFUND,
        after__in=(OrderStatus.PAID, OrderStatus.REFUNDING),  # for the index
    )
    money = money.annotate(what=Case(was_paid, default=Value(DaySum.RETURNED)))
    return (
        Source(orders, "seckill_voucher", "accepted_at", "price_cents"),
        Source(money, "order__seckill_voucher", "at", "order__price_cents"),
    )


def sum_days(*, now: dt.datetime) -> bool:
    """Sum up the sales with new changes; return whether further changes wait."""
    return _passes.work([_summed_to()], partial(_sum_changed, now=now))


def changed_sales() -> set[int] | None:
    """Return the sales that have changed since they were summed up; None: too much has changed."""
    later = OrderEvent.objects.filter(pk__gt=_summed_to()).order_by("pk")
    order_ids = list(later.values_list("order", flat=True)[:MOST_CHANGES])
    return None if len(order_ids) == MOST_CHANGES else _sales_of(order_ids)


def _sales_of(order_ids: Collection[int]) -> set[int]:
    """Return the sales of these orders, without rehearsals, by their ids and with no join."""
    ids, sales = sorted(set(order_ids)), set[int]()
    for start in range(0, len(ids), AT_ONCE):
        orders = VoucherOrder.objects.filter(pk__in=ids[start : start + AT_ONCE]).order_by()
        sales.update(orders.values_list("seckill_voucher", flat=True).distinct())
    real = SeckillVoucher.objects.filter(pk__in=sales).exclude(stage=SaleStage.REHEARSAL)
    return set(real.values_list("pk", flat=True))


def _summed_to() -> int:
    return DaySum.objects.aggregate(last=Max("event_id"))["last"] or 0


def _sum_changed(last: int, *, now: dt.datetime) -> bool:
    later = OrderEvent.objects.filter(pk__gt=last).order_by("pk")
    window = later.values_list("pk", "at", "order")[:MOST_CHANGES]
    found = list(takewhile(lambda it: it[1] < now - SETTLED_AFTER, window))
    sale_ids = _sales_of([order_id for _, _, order_id in found])
    sums = (_sums_of(sale_id, to=found[-1][0], now=now) for sale_id in sale_ids)
    with transaction.atomic(durable=True):
        DaySum.objects.filter(seckill_voucher__in=sale_ids).delete()
        DaySum.objects.bulk_create(chain.from_iterable(sums))
    return bool(sale_ids) and len(found) == MOST_CHANGES


def _sums_of(sale_id: int, *, to: int, now: dt.datetime) -> Iterator[DaySum]:
    orders = VoucherOrder.objects.filter(seckill_voucher=sale_id)
    first = orders.aggregate(at=Min("accepted_at"))["at"]
    # A day more: of changes that are made meanwhile.
    period = Period(timezone.localdate(first), timezone.localdate(now) + dt.timedelta(days=1))
    for it in sources():
        days = it.rows.filter(**{it.sale: sale_id}).annotate(number=period.day_number(it.at))
        rows = days.values_list("number", "what").annotate(Count("pk"), Sum(it.cents))
        for number, what, count, cents in rows:
            sums = {"what": what, "count": count, "cents": cents, "event_id": to}
            yield DaySum(seckill_voucher_id=sale_id, day=period.day(number), **sums)
