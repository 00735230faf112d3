"""Paying: a buyer is sent to the provider, and its word, whenever it comes, makes the order paid.

The word may come twice, late, out of order or never: whoever never hears asks. Money that arrives
for an order which is no longer unpaid is sent back by itself (``orders/payments/refunds.py``).
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from celery.exceptions import SoftTimeLimitExceeded
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from orders.lifecycle.cancellation import Busy, user_key
from orders.lifecycle.transitions import PROVIDER, WrongState, change_order, note
from orders.models import CODE_LENGTH, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import (
    BadNotification,
    Charge,
    ChargeState,
    Patience,
    PaymentProvider,
    ProviderUnavailable,
    Statement,
    current_provider,
    provider_named,
)
from seckill_site.failpoints import failpoint
from vouchers.inventory.keys import LedgerUnavailable

logger = logging.getLogger(__name__)

CODE_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Digits and letters of which no two are taken for one another: five bits each."""

FIRST_ASK_S, LONGEST_PAUSE_S, ASKED_FOR = 15, 600, dt.timedelta(days=1)
"""A provider is first asked after so long, then ever less often, and no more a day after it could
still be paid."""

TRUSTED_FOR = dt.timedelta(seconds=10)
"""So long a new charge is taken to be open without asking."""

ASKED_AT_ONCE = 50
"""How many payments one call asks for: each may cost the provider's time-out."""


@dataclass(frozen=True)
class Addresses:
    """Where the provider sends the buyer back to, and where it sends its word."""

    return_url: str
    notify_url: str


# --- Sending the buyer to the provider ------------------------------------------------------------


def start_payment(*, order_id: int, addresses: Addresses) -> str:
    """Return the address where this unpaid order is paid; asked again, the same one.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not unpaid, or its time is over.
    :raises ProviderUnavailable: the provider does not answer; try again.
    :raises Busy: the order is being changed just now.
    :raises LedgerUnavailable: Redis did not answer.
    """
    order = _payable(order_id)
    if order.price_cents == 0:
        _settle(_payment_of(order, provider=""), "")
        return addresses.return_url
    provider = current_provider()
    payment = _payment_of(order, provider=provider.name)
    if payment.pay_url and payment.created_at < timezone.now() - TRUSTED_FOR:
        # The buyer comes back without having paid: the charge may be closed by now.
        ask_for(payment, now=timezone.now())
        payment = _payment_of(_payable(order_id), provider=provider.name)
    if payment.pay_url:
        return payment.pay_url
    pay_url = provider.create(_charge(order, payment, addresses))
    still_open = Payment.objects.filter(pk=payment.pk, status=PaymentStatus.OPEN)
    if not still_open.update(pay_url=pay_url):
        # Whoever asked before the charge was there has heard that there is none.
        raise ProviderUnavailable(f"payment {payment} was closed meanwhile")
    return pay_url


def _payable(order_id: int) -> VoucherOrder:
    order = VoucherOrder.objects.select_related("seckill_voucher__voucher").get(pk=order_id)
    if order.status != OrderStatus.UNPAID:
        raise WrongState(order.status)
    if order.pay_by is not None and order.pay_by <= timezone.now():
        raise WrongState(OrderStatus.EXPIRED)
    return order


def _payment_of(order: VoucherOrder, *, provider: str) -> Payment:
    """Return the order's open payment at this provider; two clicks at once make one.

    :raises WrongState: the order is not unpaid any more.
    """
    assert order.user_id is not None  # a live order has a buyer
    with user_key(sale_id=order.seckill_voucher_id, user_id=order.user_id):
        _payable(order.pk)  # another click may have paid it since
        found = order.payments.filter(provider=provider, status=PaymentStatus.OPEN).first()
        return found or order.payments.create(
            reference=secrets.token_hex(16),
            provider=provider,
            amount_cents=order.price_cents,
            ask_at=timezone.now() + dt.timedelta(seconds=FIRST_ASK_S) if provider else None,
        )


def _charge(order: VoucherOrder, payment: Payment, addresses: Addresses) -> Charge:
    return Charge(
        reference=payment.reference,
        amount_cents=payment.amount_cents,
        subject=str(order.seckill_voucher.voucher),
        pay_by=order.pay_by or timezone.now() + ASKED_FOR,  # an order of an older release has none
        return_url=addresses.return_url,
        notify_url=addresses.notify_url,
    )


# --- Hearing from the provider --------------------------------------------------------------------


def take_notification(*, provider_name: str, headers: Mapping[str, str], body: bytes) -> str:
    """Do what a notification says, and return what the provider wants to hear.

    :raises LookupError: there is no such provider.
    :raises BadNotification: it is not the provider's own, or says what cannot be.
    :raises Busy: the order is being changed just now; the provider has to send it again.
    :raises LedgerUnavailable: Redis did not answer; likewise.
    """
    provider = provider_named(provider_name)
    take_statement(provider, provider.read_notification(headers=headers, body=body))
    return provider.acknowledgement


def take_statement(provider: PaymentProvider, statement: Statement) -> None:
    """Do what a provider says of a payment; said again, nothing more happens.

    :raises BadNotification: it knows no such payment of ours, or of another amount.
    :raises Busy: as ``take_notification``; also ``LedgerUnavailable``.
    """
    found = Payment.objects.filter(provider=provider.name, reference=statement.reference)
    payment = found.select_related("order").first()
    if payment is None:
        raise BadNotification(f"no payment {statement.reference}")
    if statement.state is ChargeState.CLOSED:
        found.filter(status=PaymentStatus.OPEN).update(status=PaymentStatus.CLOSED, ask_at=None)
    if statement.state is not ChargeState.PAID:
        return
    if statement.amount_cents != payment.amount_cents:
        problem = f"{statement.amount_cents} cents arrived instead of {payment.amount_cents}"
        logger.error("payment %s of order %s: %s", payment, payment.order_id, problem)
        found.update(problem=problem)
        raise BadNotification(problem)
    _settle(payment, statement.provider_reference)


def _settle(payment: Payment, provider_reference: str) -> None:
    """Make the order paid, or where it is not unpaid any more send the money back. Once."""
    order = payment.order
    assert order.user_id is not None
    with (
        user_key(sale_id=order.seckill_voucher_id, user_id=order.user_id),
        transaction.atomic(durable=True),
    ):
        # Orders before payments, in every flow.
        VoucherOrder.objects.select_for_update().get(pk=order.pk)
        mine = Payment.objects.filter(
            pk=payment.pk, status__in=(PaymentStatus.OPEN, PaymentStatus.CLOSED)
        )
        now = timezone.now()
        if not mine.update(
            status=PaymentStatus.PAID, provider_reference=provider_reference, ask_at=None
        ):
            return  # heard before
        mine = Payment.objects.filter(pk=payment.pk)
        try:
            change_order(
                sale_id=order.seckill_voucher_id,
                order_id=order.pk,
                to=OrderStatus.PAID,
                by=PROVIDER,
                at=now,
                code=_new_code(),
            )
            mine.update(settles=True)
        except WrongState as error:
            logger.warning("order %s is %s: its money goes back", order.pk, error.status)
            problem = gettext_noop("The payment arrived too late and is being refunded.")
            mine.update(status=PaymentStatus.REFUNDING, problem=problem, ask_at=now, asked=0)
            # No change of state, but the buyer has to be told.
            ids = [order.pk]
            was = error.status
            note(order_ids=ids, before=was, after=was, by=PROVIDER, at=now, why=problem)
        failpoint("settle.before_commit")
    failpoint("settle.committed")


def _new_code() -> str:
    """Return a voucher code that nobody can guess: 80 bits."""
    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))


# --- Asking the provider --------------------------------------------------------------------------


class Heard(Enum):
    """What came of asking for a payment."""

    KNOWN = "known"
    SILENCE = "silence"
    LATER = "later"
    """The provider has answered, but the answer could not be acted on just now."""


def poll_payments(*, now: dt.datetime) -> int:
    """Ask the providers for the payments of which no word has come; return how many were asked."""
    due = Payment.objects.filter(status=PaymentStatus.OPEN, ask_at__lte=now)
    patience, asked = Patience(), 0
    for payment in due.order_by("ask_at").select_related("order")[:ASKED_AT_ONCE]:
        if not patience.allows(payment.provider):
            continue
        asked += 1
        if ask_for(payment, now=now) is Heard.SILENCE:
            patience.was_silent(payment.provider)
    return asked


def ask_for(payment: Payment, *, now: dt.datetime) -> Heard:
    """Ask what became of a payment, and do what the answer says."""
    pause_s = min(FIRST_ASK_S * 2 ** min(payment.asked, 10), LONGEST_PAUSE_S)
    mine = Payment.objects.filter(pk=payment.pk, status=PaymentStatus.OPEN)
    mine.update(asked=payment.asked + 1, ask_at=now + dt.timedelta(seconds=pause_s))
    try:
        provider = provider_named(payment.provider)
        statement = provider.query(payment.reference)
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:  # whatever a provider's class may raise, it is no answer
        logger.warning("payment %s cannot be asked for now: %r", payment, error)
        mine.filter(silent_since=None).update(silent_since=now)
        return Heard.SILENCE
    mine.update(silent_since=None)
    try:
        take_statement(provider, statement)
    except (Busy, LedgerUnavailable) as error:
        logger.warning("the answer for payment %s has to wait: %r", payment, error)
        return Heard.LATER
    except BadNotification as error:
        logger.warning("payment %s is not what was asked for: %s", payment, error)
    if now > _last_moment(payment) + ASKED_FOR:
        mine.update(ask_at=None)  # nobody has paid, and nobody can any more
    return Heard.KNOWN


def _last_moment(payment: Payment) -> dt.datetime:
    return max(payment.created_at, payment.order.pay_by or payment.created_at)
