"""Deadlines: what falls due soon wakes the shop, so that beat is at its full pace by then."""

import datetime as dt

from api.webhooks.delivery import are_webhooks_due
from orders.lifecycle.notices import notices_due
from orders.models import OrderEvent, OrderStatus, Payment, PaymentStatus, VoucherOrder
from vouchers.models import Draw, SaleMode, SaleStage, SeckillVoucher

AHEAD = dt.timedelta(seconds=20)
"""Longer than from one look to the next, and until beat has noticed."""


def something_is_due(*, now: dt.datetime) -> bool:
    """Return whether a deadline is near or past. Every query uses an index."""
    soon, unsettled = now + AHEAD, (PaymentStatus.OPEN, PaymentStatus.REFUNDING)
    ended = SeckillVoucher.objects.filter(mode=SaleMode.DRAW, ends_at__lte=soon)
    drawn = ended.exclude(stage=SaleStage.DRAFT)
    due = (
        VoucherOrder.objects.filter(status=OrderStatus.UNPAID, pay_by__lte=soon),
        Payment.objects.filter(status__in=unsettled, ask_at__lte=soon),
        Draw.objects.filter(finished_at=None, seckill_voucher__in=drawn),
        OrderEvent.to_tell(now=soon),
    )
    return (
        any(rows.exists() for rows in due)
        or bool(notices_due(now=soon))
        or are_webhooks_due(now=soon)
    )
