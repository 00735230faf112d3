"""Refunding: money goes back through the provider, and with it the unit of the order it paid.

Two steps, because the provider may be away between them: first the order (or the late payment
alone) is marked as being refunded; then the provider is told, again and again until it has done it.
"""

from __future__ import annotations

import datetime as dt
import logging

from celery.exceptions import SoftTimeLimitExceeded
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from orders.lifecycle.cancellation import end_locked, end_orders, give_back, user_key
from orders.lifecycle.transitions import SYSTEM, Actor, WrongState, change_order
from orders.models import ActorKind, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import Patience, provider_named
from seckill_site.failpoints import failpoint

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5, 600
"""Between two tries to tell a provider."""

TOLD_AT_ONCE = 50


class NotRefundable(Exception):
    """The sale's rule is that a buyer cannot give a paid voucher back."""


def refund_order(*, order_id: int, by: Actor, why: str = "") -> None:
    """Begin to refund a paid and unused order; the provider is told at once, or by ``beat``.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not paid; nothing was changed.
    :raises NotRefundable: a buyer asks, and the sale's rule says no.
    :raises Busy: the order is being changed just now.
    :raises LedgerUnavailable: Redis did not answer.
    """
    order = VoucherOrder.objects.select_related("seckill_voucher").get(pk=order_id)
    if order.status != OrderStatus.PAID or order.user_id is None:
        raise WrongState(order.status)
    if by.kind == ActorKind.BUYER and not order.seckill_voucher.refundable:
        raise NotRefundable
    with (
        user_key(sale_id=order.seckill_voucher_id, user_id=order.user_id),
        transaction.atomic(durable=True),
    ):
        now = timezone.now()
        change_order(
            sale_id=order.seckill_voucher_id,
            order_id=order_id,
            to=OrderStatus.REFUNDING,
            by=by,
            at=now,
            why=why,
        )
        paid = Payment.objects.filter(order=order_id, settles=True, status=PaymentStatus.PAID)
        has_money = paid.update(status=PaymentStatus.REFUNDING, ask_at=now, asked=0)
        failpoint("refund.before_commit")
    failpoint("refund.committed")
    if not has_money:  # it was made paid by hand, and nothing has to go back
        sale_id = order.seckill_voucher_id
        end_orders(sale_id=sale_id, order_ids=[order_id], to=OrderStatus.REFUNDED, by=SYSTEM)
    for payment in Payment.objects.filter(order=order_id, status=PaymentStatus.REFUNDING):
        finish_refund(payment, now=now)


def finish_refunds(*, now: dt.datetime) -> int:
    """Tell the providers once more of all that is to be refunded; return how many were finished."""
    due = Payment.objects.filter(status=PaymentStatus.REFUNDING, ask_at__lte=now)
    patience, finished = Patience(), _end_those_without_money()
    for payment in due.order_by("ask_at").select_related("order")[:TOLD_AT_ONCE]:
        if patience.allows(payment.provider):
            done = finish_refund(payment, now=now)
            finished += done
            if not done:
                patience.was_silent(payment.provider)
    return finished


def _end_those_without_money() -> int:
    """End the orders that are being refunded but have no payment to wait for."""
    waits = Payment.objects.filter(order=OuterRef("pk"), status=PaymentStatus.REFUNDING)
    found = VoucherOrder.objects.filter(status=OrderStatus.REFUNDING).exclude(Exists(waits))
    orders = list(found.order_by("pk").values_list("seckill_voucher_id", "pk")[:TOLD_AT_ONCE])
    for sale_id, order_id in orders:
        end_orders(sale_id=sale_id, order_ids=[order_id], to=OrderStatus.REFUNDED, by=SYSTEM)
    return len(orders)


def finish_refund(payment: Payment, *, now: dt.datetime) -> bool:
    """Tell the provider to refund; once it has, the order ends and its unit goes back on sale."""
    pause_s = min(FIRST_PAUSE_S * 2 ** min(payment.asked, 10), LONGEST_PAUSE_S)
    Payment.objects.filter(pk=payment.pk, status=PaymentStatus.REFUNDING).update(
        asked=payment.asked + 1, ask_at=now + dt.timedelta(seconds=pause_s)
    )
    try:
        done = not payment.provider or provider_named(payment.provider).refund(
            payment.reference, amount_cents=payment.amount_cents
        )
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:  # whatever a provider's class may raise, it is no answer
        logger.warning("payment %s cannot be refunded now: %r", payment, error)
        return False
    failpoint("refund.told")
    if done:
        _close(payment)
    return done


def _close(payment: Payment) -> None:
    sale_id = payment.order.seckill_voucher_id
    with transaction.atomic(durable=True):
        ended = []
        if payment.settles:
            ended = end_locked(
                sale_id=sale_id,
                order_ids=[payment.order_id],
                to=OrderStatus.REFUNDED,
                by=SYSTEM,
            )
        Payment.objects.filter(pk=payment.pk, status=PaymentStatus.REFUNDING).update(
            status=PaymentStatus.REFUNDED, ask_at=None
        )
        failpoint("refund.closing")
    failpoint("refund.closed")
    give_back(sale_id=sale_id, orders=ended, reason=OrderStatus.REFUNDED)
