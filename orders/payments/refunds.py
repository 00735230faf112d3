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

Note [Refunds by hand]
~~~~~~~~~~~~~~~~~~~~~~
A provider says how much of a charge has gone back, and a charge may have several shares. What
explains itself by a refund that was asked for, by its number or by its amount, is left to that. The
rest was refunded on the provider's own pages, for no share by name. It is taken as the refund of
the shares that staff decide about, then of unused vouchers, the last one first: as many as it pays
in full end, as a payment refunded whole does, and what is left is a part of the next one.
"""

import datetime as dt
import logging
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from orders.lifecycle.cancellation import end_locked, end_orders, give_back, user_lock
from orders.lifecycle.transitions import PROVIDER, SYSTEM, Actor, Change, WrongState, change_order
from orders.lock_objects import lock_order, lock_payment
from orders.models import (
    FOR_STAFF,
    GOING_BACK,
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
from seckill_site.metrics import counter
from seckill_site.process_memory import Latest
from vouchers.lock_objects import lock_seckill_voucher

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 5
"""The first pause between two calls to a provider that has not refunded yet."""

REFUNDS_AT_ONCE = 50

_looks_behind = Latest(None, for_s=60.0)
"""Whether to look for orders without money beside a long list, all of which that reads."""

PROBLEMS = tomllib.loads(Path(__file__).with_name("problem_texts.toml").read_text("utf-8"))
REFUSED = PROBLEMS["refund_refused"]
"""What staff read at a payment: that its refund is refused, or by its status."""

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
        has_money = return_paid(paid, now=now) or paid.filter(status__in=FOR_STAFF).exists()
        failpoint("refund.before_commit")
    failpoint("refund.committed")
    if not has_money:
        _end_without_money(sale_id, order_id, now)
    for payment in Payment.objects.filter(order=order_id, status=PaymentStatus.REFUNDING):
        finish_refund(payment, now=now)


def return_paid(payments: QuerySet[Payment], *, now: dt.datetime) -> int:
    """Mark those of these payments that are paid as going back; return how many were."""
    goes_back = {"status": PaymentStatus.REFUNDING, "ask_at": now, "asked": 0}
    return payments.filter(status=PaymentStatus.PAID).update(**goes_back, changed_at=now)


def finish_refunds(*, now: dt.datetime) -> int:
    """Ask the providers again to make open refunds; return how many were finished.

    The providers take turns, so one that is slow or away holds up no other.
    """
    refunding = Payment.objects.filter(status=PaymentStatus.REFUNDING)
    due = refunding.filter(ask_at__lte=now).order_by("ask_at").select_related("order", "charge")
    providers = list(refunding.order_by().values_list("provider", flat=True).distinct())
    by_provider = [list(due.filter(provider=it)[:REFUNDS_AT_ONCE]) for it in providers]
    finished = 0
    if all(len(it) < REFUNDS_AT_ONCE for it in by_provider) or _looks_behind.claim():
        finished += _end_those_without_money(now)
    budget = PollBudget()
    for payment in chain.from_iterable(zip_longest(*by_provider)):
        if payment and budget.allows(payment.provider):
            finished += finish_refund(payment, now=now, budget=budget)
    return finished


def _end_those_without_money(now: dt.datetime) -> int:
    has_money = (PaymentStatus.REFUNDING, *FOR_STAFF)
    waits = Payment.objects.filter(order=OuterRef("pk"), status__in=has_money)
    unpaid = VoucherOrder.objects.filter(status=OrderStatus.REFUNDING).exclude(Exists(waits))
    orders = unpaid.order_by("pk").values_list("seckill_voucher_id", "pk")[:REFUNDS_AT_ONCE]
    for sale_id, order_id in orders:
        _end_without_money(sale_id, order_id, now)
    return len(orders)


def _end_without_money(sale_id: int, order_id: int, now: dt.datetime) -> None:
    """End a refunding order without a payment, which staff had marked as paid manually."""
    refunded = Change(OrderStatus.REFUNDED, SYSTEM, now)
    end_orders(refunded, sale_id=sale_id, order_ids=[order_id])


def finish_refund(payment: Payment, *, now: dt.datetime, budget: PollBudget | None = None) -> bool:
    """Ask the provider to refund; once it has, the order ends and its unit goes back on sale.

    ``budget`` counts silences and refusals. A provider that works on a refund is not silent. Of
    several processes that have read the same payment, one asks.
    """
    refunding = Payment.objects.filter(pk=payment.pk, status=PaymentStatus.REFUNDING)
    ask_at = now + backoff(payment.asked, first_s=FIRST_PAUSE_S)
    unasked = refunding.filter(asked=payment.asked)
    if not unasked.update(asked=payment.asked + 1, ask_at=ask_at):
        return False
    paid_cents, gone_cents = payment.paid_cents, payment.refunded_cents
    charge = payment.charge or payment
    refund = Refund(
        reference=charge.reference,
        number=payment.refund_number,
        amount_cents=paid_cents - gone_cents,
        charged_cents=payment.charged_cents,
        gone_cents=gone_cents_of(payment.list_shares()),
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
        said = Statement(charge.reference, ChargeState.PAID, payment.charged_cents)
        known = replace(said, refunded_cents=part.refunded_cents, numbers=part.numbers)
        note_standing(payment, known, now=now, unmade=payment.pk)
        return False
    except ProviderUnavailable as error:
        if budget:
            budget.count_silence(payment.provider)
        if isinstance(error, RefundRefused):
            logger.error("payment %s: the provider refuses its refund: %s", payment, error)
            refunding.filter(problem="").update(problem=REFUSED)
        else:
            logger.warning("payment %s cannot be refunded now: %s", payment, error)
        return False
    failpoint("refund.told")
    if done:
        _close(payment, now, refunded_cents=paid_cents)
        counter("payments", payment.provider, "refunded").inc()
    return done


def gone_cents_of(shares: Iterable[Payment]) -> int:
    """Return what has gone back of these payments, as far as their provider has said."""
    return sum(it.refunded_cents for it in shares)


def note_standing(
    payment: Payment, said: Statement, *, now: dt.datetime, unmade: int | None = None
) -> None:
    """Note what went back of a charge at the provider, or is disputed (Note [Third states]).

    ``unmade`` is the share whose refund it has not made because of that.
    """
    with transaction.atomic(durable=True):
        shares = payment.list_shares()
        orders = {it.pk: lock_order(order_id=it.order_id) for it in shares}
        shares = [lock_payment(payment_id=it.pk) for it in shares]
        paid = [it for it in shares if it.status in (PaymentStatus.PAID, *GOING_BACK)]
        gone = _shared_out(paid, orders, said, unmade)
        for share in paid:
            _note_share(share, orders[share.pk], said, gone[share.pk], now)


def _shared_out(
    shares: list[Payment], orders: Mapping[int, VoucherOrder], said: Statement, unmade: int | None
) -> dict[int, int]:
    """Return what has gone back of each share, if so much has of their charge."""
    gone = {it.pk: it.refunded_cents for it in shares}
    if said.refunded_cents is None:
        return gone
    more = said.refunded_cents - gone_cents_of(shares)
    if said.refund_failed:
        return gone | _without_failed(shares, said, lost=-more)
    left = {it.pk: it.paid_cents - it.refunded_cents for it in shares}
    by_hand = max(min(more, sum(left.values())), 0)
    if by_hand < sum(left.values()):
        for it in shares:
            if it.status == PaymentStatus.REFUNDING and it.pk != unmade:
                is_ours = said.numbers is None or it.refund_number in said.numbers
                if is_ours and by_hand >= left[it.pk]:
                    by_hand -= left.pop(it.pk)
    for it in sorted(shares, key=lambda it: _turn(it, orders[it.pk], unmade)):
        part = min(by_hand, left.get(it.pk, 0))
        gone[it.pk], by_hand = gone[it.pk] + part, by_hand - part
    return gone


def _turn(share: Payment, order: VoucherOrder, unmade: int | None) -> tuple[int | bool, ...]:
    """Return the place of a share in the order of Note [Refunds by hand]."""
    is_asked, is_paid = (share.status == it for it in (PaymentStatus.REFUNDING, PaymentStatus.PAID))
    is_used = order.status != OrderStatus.PAID
    return share.pk != unmade, is_asked, is_paid, is_used, -order.pk


def _without_failed(shares: list[Payment], said: Statement, *, lost: int) -> dict[int, int]:
    """Return what has gone back of the shares of a refund that failed: by number, or by hand."""
    named = [it for it in shares if it.refund_number == said.refund_number]
    by_hand = sorted(shares, key=lambda it: it.status != PaymentStatus.PARTLY_REFUNDED)
    gone = {}
    for it in named or by_hand:
        if named:
            lost = it.refunded_cents - max(it.paid_cents - said.failed_cents, 0)
        less = max(min(lost, it.refunded_cents), 0)
        gone[it.pk], lost = it.refunded_cents - less, lost - less
    return gone


def _note_share(
    payment: Payment, order: VoucherOrder, said: Statement, gone_cents: int, now: dt.datetime
) -> None:
    before, gone_before = payment.status, payment.refunded_cents
    was_refunded = before == PaymentStatus.REFUNDED or payment.refunded_at is not None
    is_about = payment.total_cents is None or gone_cents < gone_before
    has_failed = said.refund_failed and was_refunded and is_about
    payment.refunded_cents = gone_cents
    has_news = gone_cents != gone_before
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
        payment.problem = PROBLEMS.get(payment.status, "")
    payment.save(
        update_fields=["status", "refunded_cents", "ask_at", "asked", "problem", "changed_at"]
    )
    logger.warning("payment %s was %s and is %s", payment, before, payment.status)


def _is_disputed(payment: Payment, said: Statement) -> bool:
    is_refunded = payment.status == PaymentStatus.REFUNDED
    # Staff have decided, perhaps about this very dispute; or it is about the other shares.
    if is_refunded and (payment.total_cents is not None or not _is_whole(payment)):
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
    ends.filter(problem__in=PROBLEMS.values()).update(problem="")
    ends.update(status=PaymentStatus.REFUNDED, ask_at=None, refunded_at=now, **known)
    failpoint("refund.closing")
    return ended


def _give_back(payment: Payment, ended: list[VoucherOrder]) -> None:
    failpoint("refund.closed")
    sale_id = payment.order.seckill_voucher_id
    give_back(sale_id=sale_id, orders=ended, reason=OrderStatus.REFUNDED)
