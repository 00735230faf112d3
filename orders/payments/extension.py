"""More time to pay: a buyer takes it once, in the last two minutes (WCAG 2.2.1)."""

import datetime as dt

from django.db import transaction

from orders.lifecycle.transitions import Actor, Change, WrongState, note
from orders.lock_objects import lock_order
from orders.models import EventCode, OrderStatus
from orders.payments.time_to_pay import is_over
from vouchers.inventory.receipt_cache import invalidate_rows

LAST = dt.timedelta(minutes=2, seconds=5)
"""The end of the time to pay, in which it can be extended; pages may be some seconds early."""


def extend_time(*, order_id: int, by: Actor, now: dt.datetime) -> None:
    """Give the buyer of an unpaid order more time to pay; again changes nothing.

    Payments that are started later get the new time (``start_payment``).

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not unpaid, or its time is over or cannot be extended now.
    """
    with transaction.atomic(durable=True):
        order = lock_order(order_id=order_id)
        sale = order.seckill_voucher
        if order.status != OrderStatus.UNPAID or is_over(order, now=now):
            raise WrongState(order.status)
        if order.extended_at:
            return
        if order.pay_by is None or order.pay_by > now + LAST or not sale.extendable:
            raise WrongState(order.status)
        invalidate_rows(sale_id=sale.pk, order_ids=[order_id])
        order.pay_by += dt.timedelta(minutes=sale.extension_min)
        order.extended_at = now
        order.save(update_fields=["pay_by", "extended_at"])
        taken = Change(OrderStatus.UNPAID, by, now, code=EventCode.EXTENDED)
        note(taken, order_ids=[order_id], before=order.status)
        # Its buyer knows: no mail.
        order.events.filter(code=EventCode.EXTENDED).update(notified_at=now)
