"""Refunds: the money goes back through the provider, and the order's unit goes back on sale.

Two steps, because the provider may be down between them: first the order (or a late payment alone)
is marked as refunding, then the provider is asked repeatedly until it has refunded it.

Note [Third states]
~~~~~~~~~~~~~~~~~~~
Staff may refund a part at the provider, a buyer may dispute a payment, and a refund that the
provider had confirmed may still fail. The order has no states for that. The payment has
(``FOR_STAFF``), the provider is not asked about it any more, and staff ``decide``. What the
provider says is noted while the order's row is locked, so that a dispute and the use of the code
meet there. What has gone back in full ends the order by itself. A refund that the provider refuses
is repeated, because somebody may put that right there; if nobody can, staff count it as refunded.
"""

import datetime as dt
import logging
from enum import StrEnum
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext_noop

from orders.lifecycle.cancellation import end_locked, end_orders, give_back, user_lock
from orders.lifecycle.transitions import (
    PROVIDER,
    SYSTEM,
    Actor,
    Change,
    WrongState,
    change_order,
)
from orders.lock_objects import lock_order, lock_payment
from orders.models import (
    FOR_STAFF,
    ActorKind,
    OrderStatus,
    Payment,
    PaymentStatus,
    VoucherOrder,
)
from orders.payments.providers import (
    CURRENCY,
    ChargeState,
    PartlyRefunded,
    PollBudget,
    ProviderUnavailable,
    Refund,
    RefundRefused,
    Statement,
    backoff,
    call_provider,
)
from seckill_site.failpoints import failpoint
from vouchers.lock_objects import lock_seckill_voucher

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 5
"""The first pause between two calls to a provider that has not refunded yet."""

REFUNDS_AT_ONCE = 50

REFUSED = gettext_noop("The provider refused the refund. See the provider's own dashboard.")

PROBLEMS = {
    PaymentStatus.PARTLY_REFUNDED: gettext_noop("A part was refunded at the provider."),
    PaymentStatus.DISPUTED: gettext_noop(
        "The buyer disputes this payment at the provider. The voucher code is blocked."
    ),
    PaymentStatus.REFUND_FAILED: gettext_noop(
        "The provider had confirmed the refund, but the buyer did not get it."
    ),
}


_WITH_MONEY = (
    PaymentStatus.PAID,
    PaymentStatus.REFUNDING,
    PaymentStatus.REFUNDED,
    *FOR_STAFF,
)


_WITH_VOUCHER = (OrderStatus.PAID, OrderStatus.USED)
"""The states of an order that may keep its payment."""


class Decision(StrEnum):
    """What staff decide about a payment that the provider does not settle by itself."""

    REFUND_REST = "rest"
    COUNT_AS_REFUNDED = "count"


class NothingToDecide(Exception):
    """Staff may not decide so about the payment, or not any more."""


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
        paid = Payment.objects.filter(order=order_id, settles=True)
        goes_back = {"status": PaymentStatus.REFUNDING, "ask_at": now, "asked": 0}
        has_money = (
            paid.filter(status=PaymentStatus.PAID).update(**goes_back, changed_at=now)
            or paid.filter(status__in=FOR_STAFF).exists()
        )
        failpoint("refund.before_commit")
    failpoint("refund.committed")
    if not has_money:
        _end_without_money(sale_id, order_id, now)
    for payment in Payment.objects.filter(order=order_id, status=PaymentStatus.REFUNDING):
        finish_refund(payment, now=now)


def finish_refunds(*, now: dt.datetime) -> int:
    """Ask the providers again to make open refunds; return how many were finished."""
    has_money = (PaymentStatus.REFUNDING, *FOR_STAFF)
    waits = Payment.objects.filter(order=OuterRef("pk"), status__in=has_money)
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
    paid_cents, gone_cents = payment.paid_cents, payment.refunded_cents
    refund = Refund(
        reference=payment.reference,
        number=payment.refund_number,
        amount_cents=paid_cents - gone_cents,
        charged_cents=paid_cents,
        currency=payment.received_currency or CURRENCY,
        provider_reference=payment.provider_reference,
    )
    try:
        done = (
            not payment.provider
            or _is_whole(payment)
            or call_provider(payment.provider, lambda it: it.refund(refund))
        )
    except PartlyRefunded as part:
        gone = part.refunded_cents
        known = Statement(payment.reference, ChargeState.PAID, paid_cents, refunded_cents=gone)
        note_standing(payment, known, now=now)
        return False
    except RefundRefused as error:
        logger.error("payment %s: the provider refuses its refund: %s", payment, error)
        refunding.filter(problem="").update(problem=REFUSED)
        return False
    except ProviderUnavailable as error:
        logger.warning("payment %s cannot be refunded now: %s", payment, error)
        return False
    failpoint("refund.told")
    if done:
        _close(payment, now, refunded_cents=paid_cents)
    return done


def note_standing(payment: Payment, said: Statement, *, now: dt.datetime) -> None:
    """Note what went back at the provider, or is disputed there (Note [Third states])."""
    with transaction.atomic(durable=True):
        order = lock_order(order_id=payment.order_id)
        payment = lock_payment(payment_id=payment.pk)
        before, gone_before = payment.status, payment.refunded_cents
        if before not in _WITH_MONEY:
            return
        was_refunded = before == PaymentStatus.REFUNDED or payment.refunded_at is not None
        has_failed = said.refund_failed and was_refunded
        if said.refunded_cents is not None:
            gone = min(said.refunded_cents, payment.paid_cents)
            least, most = sorted((gone, gone_before))
            payment.refunded_cents = least if said.refund_failed else most
        has_news = payment.refunded_cents != gone_before
        if _is_disputed(payment, said):
            payment.status = PaymentStatus.DISPUTED
        elif was_refunded:
            payment.status = _after_refund(payment, has_failed=has_failed)
        else:
            payment.status = _before_refund(payment, order, has_news=has_news)
        if payment.status == before and not has_news:
            return
        goes_back = payment.status == PaymentStatus.REFUNDING
        if goes_back and payment.settles and order.status == OrderStatus.PAID:
            refunding = Change(OrderStatus.REFUNDING, PROVIDER, now)
            change_order(refunding, sale_id=order.seckill_voucher_id, order_id=order.pk)
        payment.ask_at, payment.asked = (now, 0) if goes_back else (None, payment.asked)
        if before in FOR_STAFF or payment.status in FOR_STAFF:
            payment.problem = PROBLEMS.get(PaymentStatus(payment.status), "")
        payment.save(
            update_fields=[
                "status", "refunded_cents", "ask_at", "asked", "problem", "changed_at"
            ]
        )  # fmt: skip
    logger.warning("payment %s was %s and is %s", payment, before, payment.status)


def _is_disputed(payment: Payment, said: Statement) -> bool:
    is_counted = payment.status == PaymentStatus.REFUNDED and not _is_whole(payment)
    if is_counted:  # staff have decided, perhaps about this very dispute
        return False
    return payment.status == PaymentStatus.DISPUTED if said.disputed is None else said.disputed


def _is_whole(payment: Payment) -> bool:
    return payment.refunded_cents >= payment.paid_cents


def _after_refund(payment: Payment, *, has_failed: bool) -> PaymentStatus:
    is_counted = payment.status == PaymentStatus.REFUNDED and not has_failed
    is_over = is_counted or _is_whole(payment)
    return PaymentStatus.REFUNDED if is_over else PaymentStatus.REFUND_FAILED


def _before_refund(payment: Payment, order: VoucherOrder, *, has_news: bool) -> PaymentStatus:
    is_decided = payment.status == PaymentStatus.REFUNDING
    if _is_whole(payment) or (is_decided and not has_news):
        return PaymentStatus.REFUNDING
    if payment.refunded_cents:
        return PaymentStatus.PARTLY_REFUNDED
    goes_back = is_decided or not payment.settles or order.status not in _WITH_VOUCHER
    return PaymentStatus.REFUNDING if goes_back else PaymentStatus.PAID


def decisions_about(payment: Payment) -> tuple[Decision, ...]:
    """Return what staff may decide about a payment now."""
    if payment.status in FOR_STAFF:
        return tuple(Decision)
    is_refused = payment.status == PaymentStatus.REFUNDING and payment.problem == REFUSED
    return (Decision.COUNT_AS_REFUNDED,) if is_refused else ()


def decide(
    decision: Decision, *, payment_id: int, by: Actor, now: dt.datetime, why: str = ""
) -> None:
    """Refund the rest of a payment, or count it as refunded; its order ends, if it has not yet.

    :raises Payment.DoesNotExist: there is no such payment.
    :raises NothingToDecide: it is not among ``decisions_about`` the payment; nothing was changed.
    """
    its_order = Payment.objects.values_list("order__seckill_voucher_id", "order_id")
    sale_id, order_id = its_order.get(pk=payment_id)
    ended: list[VoucherOrder] = []
    with transaction.atomic(durable=True):
        lock_seckill_voucher(sale_id=sale_id)  # before the order, which may end here
        order = lock_order(order_id=order_id)
        payment = lock_payment(payment_id=payment_id)
        if decision not in decisions_about(payment):
            raise NothingToDecide(f"payment {payment} is {payment.status}")
        if payment.settles and order.status == OrderStatus.PAID:
            refunding = Change(OrderStatus.REFUNDING, by, now, why)
            change_order(refunding, sale_id=sale_id, order_id=order_id)
        if decision is Decision.REFUND_REST:
            payment.refund_round += payment.status == PaymentStatus.REFUND_FAILED
            payment.status, payment.problem = PaymentStatus.REFUNDING, ""
            payment.ask_at, payment.asked, payment.refunded_at = now, 0, None
            payment.save()
        else:
            ended = _close_locked(payment, now)
    if decision is Decision.REFUND_REST:
        finish_refund(payment, now=now)
    else:
        _give_back(payment, ended)


def _close(payment: Payment, now: dt.datetime, **known: Any) -> None:
    with transaction.atomic(durable=True):
        ended = _close_locked(payment, now, **known)
    _give_back(payment, ended)


def _close_locked(payment: Payment, now: dt.datetime, **known: Any) -> list[VoucherOrder]:
    """End a payment and its order in the caller's transaction; return the order if it ended."""
    ended: list[VoucherOrder] = []
    if payment.settles:  # a late payment paid no order: Note [Late payments] in service.py
        refunded = Change(OrderStatus.REFUNDED, SYSTEM, now)
        sale_id = payment.order.seckill_voucher_id
        ended = end_locked(refunded, sale_id=sale_id, order_ids=[payment.order_id])
    ends = Payment.objects.filter(pk=payment.pk, status__in=(PaymentStatus.REFUNDING, *FOR_STAFF))
    ends.filter(problem__in=(REFUSED, *PROBLEMS.values())).update(problem="")
    ends.update(status=PaymentStatus.REFUNDED, ask_at=None, refunded_at=now, **known)
    failpoint("refund.closing")
    return ended


def _give_back(payment: Payment, ended: list[VoucherOrder]) -> None:
    failpoint("refund.closed")
    sale_id = payment.order.seckill_voucher_id
    give_back(sale_id=sale_id, orders=ended, reason=OrderStatus.REFUNDED)
