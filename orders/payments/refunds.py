"""Refunds: the money goes back through the provider, and the order's unit goes back on sale.

Two steps, because the provider may be down between them: first the order (or a late payment alone)
is marked as refunding, then the provider is asked repeatedly until it has refunded it.
"""

import datetime as dt
import logging

from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Value, When
from django.utils.translation import gettext_noop

from orders.lifecycle.cancellation import end_locked, end_orders, give_back, user_lock
from orders.lifecycle.transitions import SYSTEM, Actor, Change, WrongState, change_order
from orders.models import ActorKind, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import (
    PollBudget,
    ProviderUnavailable,
    RefundRefused,
    backoff,
    call_provider,
)
from seckill_site.failpoints import failpoint

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 5
"""The first pause between two calls to a provider that has not refunded yet."""

REFUNDS_AT_ONCE = 50

REFUSED = gettext_noop("The provider refused the refund. See the provider's own dashboard.")


class NotRefundable(Exception):
    """The sale does not let buyers return a paid voucher."""


def refund_order(*, order_id: int, by: Actor, now: dt.datetime, why: str = "") -> None:
    """Start the refund of a paid and unused order; the provider is told at once, or by ``beat``.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not paid; nothing was changed.
    :raises NotRefundable: a buyer asks, and the sale does not allow it.
    :raises Busy: the order is being changed now.
    :raises LedgerUnavailable: Redis did not respond.
    """
    order = VoucherOrder.objects.select_related("seckill_voucher").get(pk=order_id)
    sale_id = order.seckill_voucher_id
    if order.status != OrderStatus.PAID or order.user_id is None:
        raise WrongState(order.status)
    if by.kind == ActorKind.BUYER and not order.seckill_voucher.refundable:
        raise NotRefundable(f"sale {sale_id} does not refund buyers")
    with user_lock(sale_id=sale_id, user_id=order.user_id), transaction.atomic(durable=True):
        refunding = Change(OrderStatus.REFUNDING, by, now, why)
        change_order(refunding, sale_id=sale_id, order_id=order_id)
        paid = Payment.objects.filter(order=order_id, settles=True, status=PaymentStatus.PAID)
        has_money = paid.update(status=PaymentStatus.REFUNDING, ask_at=now, asked=0, changed_at=now)
        failpoint("refund.before_commit")
    failpoint("refund.committed")
    if not has_money:
        _end_without_money(sale_id, order_id, now)
    for payment in Payment.objects.filter(order=order_id, status=PaymentStatus.REFUNDING):
        finish_refund(payment, now=now)


def finish_refunds(*, now: dt.datetime) -> int:
    """Ask the providers again to make open refunds; return how many were finished."""
    waits = Payment.objects.filter(order=OuterRef("pk"), status=PaymentStatus.REFUNDING)
    unpaid = VoucherOrder.objects.filter(status=OrderStatus.REFUNDING).exclude(Exists(waits))
    orders = unpaid.order_by("pk").values_list("seckill_voucher_id", "pk")[:REFUNDS_AT_ONCE]
    finished = 0
    for sale_id, order_id in list(orders):
        _end_without_money(sale_id, order_id, now)
        finished += 1
    due = Payment.objects.filter(status=PaymentStatus.REFUNDING, ask_at__lte=now)
    budget = PollBudget()
    for payment in due.order_by("ask_at").select_related("order")[:REFUNDS_AT_ONCE]:
        if budget.allows(payment.provider):
            done = finish_refund(payment, now=now)
            finished += done
            if not done:
                budget.count_silence(payment.provider)
    return finished


def _end_without_money(sale_id: int, order_id: int, now: dt.datetime) -> None:
    """End a refunding order without a payment, which staff had marked as paid manually."""
    refunded = Change(OrderStatus.REFUNDED, SYSTEM, now)
    end_orders(refunded, sale_id=sale_id, order_ids=[order_id])


def finish_refund(payment: Payment, *, now: dt.datetime) -> bool:
    """Ask the provider to refund; once it has, the order ends and its unit goes back on sale."""
    refunding = Payment.objects.filter(pk=payment.pk, status=PaymentStatus.REFUNDING)
    ask_at = now + backoff(payment.asked, first_s=FIRST_PAUSE_S)
    refunding.update(asked=payment.asked + 1, ask_at=ask_at)
    reference, named = payment.reference, payment.provider_reference
    amount = payment.paid_cents
    try:
        done = not payment.provider or call_provider(
            payment.provider,
            lambda it: it.refund(reference, amount_cents=amount, provider_reference=named),
        )
    except RefundRefused as error:
        logger.error("payment %s: the provider refuses its refund: %s", payment, error)
        refunding.filter(problem="").update(problem=REFUSED)
        return False
    except ProviderUnavailable as error:
        logger.warning("payment %s cannot be refunded now: %s", payment, error)
        return False
    failpoint("refund.told")
    if done:
        _close(payment, now)
    return done


def _close(payment: Payment, now: dt.datetime) -> None:
    sale_id, refunded = payment.order.seckill_voucher_id, Change(OrderStatus.REFUNDED, SYSTEM, now)
    with transaction.atomic(durable=True):
        ended = []
        if payment.settles:  # a late payment paid no order: Note [Late payments] in service.py
            ended = end_locked(refunded, sale_id=sale_id, order_ids=[payment.order_id])
        Payment.objects.filter(pk=payment.pk, status=PaymentStatus.REFUNDING).update(
            status=PaymentStatus.REFUNDED,
            ask_at=None,
            refunded_at=now,
            problem=Case(When(problem=REFUSED, then=Value("")), default=F("problem")),
        )
        failpoint("refund.closing")
    failpoint("refund.closed")
    give_back(sale_id=sale_id, orders=ended, reason=refunded.to)
