"""Unused vouchers: what was paid for them comes back by itself after their last day (ADR 0043).

Only the first step of a refund is here: the orders become refunding, many in one statement.
``refunds.finish_refunds`` then asks their providers, as for any other refund.
"""

import datetime as dt
from calendar import monthrange
from functools import partial

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from orders.lifecycle.transitions import SYSTEM, Change, change_orders
from orders.lock_objects import lock_orders
from orders.models import EventCode, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.refunds import return_paid
from seckill_site.clocks.steps import Clocks
from seckill_site.failpoints import failpoint
from vouchers.inventory.passes import Passes, are_orders_written
from vouchers.models import SeckillVoucher

REFUNDS_AT_ONCE = 500
"""The most orders whose refund starts in one transaction."""

_passes = Passes("refund_unused")


def unused_orders() -> QuerySet[VoucherOrder]:
    """Return the orders that were paid and not used.

    Nothing was paid for a free one. Of a disputed payment it is not known yet who has the money.
    """
    disputed = Payment.objects.filter(order=OuterRef("pk"), status=PaymentStatus.DISPUTED)
    paid = VoucherOrder.objects.filter(live=True, status=OrderStatus.PAID, price_cents__gt=0)
    return paid.filter(~Exists(disputed))


def orders_to_refund(today: dt.date) -> QuerySet[VoucherOrder]:
    """Return the unused orders that are due on this day of the shop's time zone."""
    sales = SeckillVoucher.objects.filter(SeckillVoucher.refunds_unused(today))
    return unused_orders().filter(seckill_voucher__in=sales)


def due_this_month(today: dt.date) -> QuerySet[VoucherOrder]:
    """Return the unused orders that are due until this month ends. They may be used before."""
    return orders_to_refund(today.replace(day=monthrange(today.year, today.month)[1]))


def refund_unused(*, clocks: Clocks) -> bool:
    """Start the refunds that are due, for the time of a pass; return whether to go on at once.

    Orders that are written now come first. One sale that fails does not stop the rest.
    """
    today = timezone.localdate(clocks.earlier)
    theirs = unused_orders().filter(seckill_voucher=OuterRef("pk"))
    sales = SeckillVoucher.objects.filter(SeckillVoucher.refunds_unused(today), Exists(theirs))
    sale_ids = _passes.in_turn(sales.order_by().values_list("pk", flat=True))
    start = partial(_start, today=today, now=clocks.database)
    return _passes.work(sale_ids, start) and not are_orders_written()


def _start(sale_id: int, *, today: dt.date, now: dt.datetime) -> bool:
    """Start refunds of a sale; return whether it may have more."""
    due = orders_to_refund(today).filter(seckill_voucher=sale_id).order_by("pk")
    with transaction.atomic(durable=True):
        order_ids = list(due.values_list("pk", flat=True)[:REFUNDS_AT_ONCE])
        failpoint("unused.found")
        # Those that were used, or returned by their buyers, meanwhile are not locked.
        orders = lock_orders(sale_id=sale_id, order_ids=order_ids, status=OrderStatus.PAID)
        locked = [order.pk for order in orders]
        refunding = Change(OrderStatus.REFUNDING, SYSTEM, now, code=EventCode.LAPSED)
        change_orders(refunding, sale_id=sale_id, order_ids=locked)
        payments = Payment.objects.filter(order__in=locked, settles=True)
        return_paid(payments, now=now)
        failpoint("unused.before_commit")
    return len(order_ids) == REFUNDS_AT_ONCE
