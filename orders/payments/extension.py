"""More time to pay: a buyer takes it once, in the last two minutes (WCAG 2.2.1)."""

import datetime as dt

from django.db import transaction

from orders.lifecycle.transitions import Actor, Change, WrongState, note
from orders.lock_objects import lock_order
from orders.models import EventCode, OrderEvent, OrderStatus, VoucherOrder
from orders.payments.time_to_pay import is_over
from vouchers.inventory.purchases import ids_of_purchase, is_in_block
from vouchers.inventory.receipt_cache import invalidate_rows

LAST = dt.timedelta(minutes=2, seconds=5)
"""The end of the time to pay, in which it can be extended; pages may be some seconds early."""


def extend_time(*, order_id: int, by: Actor, now: dt.datetime) -> None:
    """Give the buyer of an unpaid order more time to pay its purchase; again changes nothing.

    Payments that are started later get the new time (``start_payment``).

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not unpaid, or its time is over or cannot be extended now.
    """
    purchase = VoucherOrder.objects.filter(pk__in=ids_of_purchase(order_id)).order_by("pk")
    with transaction.atomic(durable=True):
        ids = list(purchase.values_list("pk", flat=True)) if is_in_block(order_id) else [order_id]
        locked = {it: lock_order(order_id=it) for it in ids}
        if order_id not in locked:
            raise VoucherOrder.DoesNotExist(f"no order {order_id}")
        order = locked[order_id]
        sale = order.seckill_voucher
        if order.status != OrderStatus.UNPAID or is_over(order, now=now):
            raise WrongState(order.status)
        if order.extended_at:
            return
        if order.pay_by is None or order.pay_by > now + LAST or not sale.extendable:
            raise WrongState(order.status)
        until = order.pay_by + dt.timedelta(minutes=sale.extension_min)
        unpaid = [it for it in locked.values() if it.status == OrderStatus.UNPAID]
        # A unit that staff have retried has a time of its own.
        together = [it for it in unpaid if not it.extended_at and not is_over(it, now=now)]
        order_ids = [it.pk for it in together]
        invalidate_rows(sale_id=sale.pk, order_ids=order_ids)
        for it in together:
            it.pay_by, it.extended_at = max(it.pay_by or until, until), now
            it.save(update_fields=["pay_by", "extended_at"])
        taken = Change(OrderStatus.UNPAID, by, now, code=EventCode.EXTENDED)
        note(taken, order_ids=order_ids, before=order.status)
        # Its buyer knows: no mail.
        events = OrderEvent.objects.filter(order__in=order_ids, code=EventCode.EXTENDED)
        events.update(notified_at=now)
