"""Confirmation: a buyer is back from the provider's page, so the provider is asked at once.

It is asked again and again for a while (``CONFIRM_FOR``), and then as any other open payment
(``poll_payments``). That also continues if a message of this chain is lost.
"""

import datetime as dt
from functools import cache

from django.db.models import Case, Value, When

from orders.models import Payment, PaymentStatus, VoucherOrder
from orders.payments.service import FIRST_ASK_S, TRUSTED_FOR, QueryOutcome, query_payment
from orders.placing.publishing import publish
from orders.receipts.payment_state import CONFIRM_FOR, is_unanswered
from seckill_site.redis.breaker import Breaker
from vouchers.inventory.purchases import ids_of_purchase
from vouchers.inventory.receipt_cache import invalidate_rows

CONFIRM_PAYMENTS = "orders.tasks.confirm_payments"

PAUSE_S = 1.0
"""The pause between two questions about a payment."""

SILENT_PAUSE_S = 5.0
"""The pause after a question that was not answered. A silent provider may cost its timeout each
time, so a process asks it about one payment only during each pause."""

LOST_AFTER_S = 10
"""After this time without a question, ``poll_payments`` asks."""


class ProviderSilent(Exception):
    """The provider did not respond, or is not asked because it did not a moment ago."""


def note_return(*, order: VoucherOrder, now: dt.datetime) -> None:
    """Note that the buyer is back from the provider, and have the provider asked at once.

    A buyer who was back a moment ago may have paid since: the provider is asked again, but not at
    once. Without a payment that may have been made, this changes nothing.
    """
    payments = Payment.objects.filter(order=order).exclude(provider="").select_related("charge")
    payments = payments.filter(status__in=(PaymentStatus.OPEN, PaymentStatus.CLOSED))
    if not payments:
        return
    # The copies in Redis say "unpaid" and nothing of a payment.
    invalidate_rows(sale_id=order.seckill_voucher_id, order_ids=ids_of_purchase(order.pk))
    open_payments = [it.charge or it for it in payments if it.status == PaymentStatus.OPEN]
    asks = [_ask_after_return(it, now) for it in open_payments]
    payments.filter(status=PaymentStatus.CLOSED).update(returned_at=now)
    if any(asks):
        publish(CONFIRM_PAYMENTS, order_id=order.pk)


def _ask_after_return(payment: Payment, now: dt.datetime) -> bool:
    """Note a return, and return whether to ask at once; otherwise ``poll_payments`` asks."""
    was_back = payment.returned_at is not None and payment.returned_at > now - TRUSTED_FOR
    if was_back and is_unanswered(payment):
        return False  # it is being asked about
    ask_at = now + dt.timedelta(seconds=LOST_AFTER_S)
    asked = payment.asked if was_back else 0
    if was_back and payment.ask_at:
        ask_at = min(payment.ask_at, ask_at)
    still_open = payment.shares.filter(status=PaymentStatus.OPEN)
    at = Case(When(charge=None, then=Value(ask_at)))
    noted = still_open.update(returned_at=now, found_open_at=None, asked=asked, ask_at=at)
    return bool(noted) and not was_back


def confirm_payments(*, order_id: int, now: dt.datetime) -> float | None:
    """Ask about an order's payments whose buyer is back.

    Return the seconds until the next call, or None if the provider has answered for all of them.
    """
    back = Payment.objects.filter(
        order=order_id, status=PaymentStatus.OPEN, returned_at__gt=now - CONFIRM_FOR
    )
    pauses = [
        pause_s
        for payment in back.exclude(provider="").select_related("order", "charge")
        if is_unanswered(payment) and (pause_s := _confirm(payment, now)) is not None
    ]
    return min(pauses, default=None)


def _confirm(payment: Payment, now: dt.datetime) -> float | None:
    """Ask about one payment; return the pause before the next question, if any is left."""
    payment = payment.charge or payment
    still_open = payment.shares.filter(status=PaymentStatus.OPEN)
    pause_s = PAUSE_S
    try:
        with _breaker(payment.provider).attempt():
            if query_payment(payment, now=now) is QueryOutcome.SILENCE:
                raise ProviderSilent(f"provider {payment.provider}")
    except ProviderSilent:
        still_open.filter(silent_since=None).update(silent_since=now)
        pause_s = SILENT_PAUSE_S
    payment.refresh_from_db()
    unanswered = is_unanswered(payment)
    ask_in = dt.timedelta(seconds=LOST_AFTER_S if unanswered else FIRST_ASK_S)
    # Not its turn in the backoff: a payment that nobody can make any more is not asked about again.
    still_open.exclude(ask_at=None).update(asked=0, ask_at=now + ask_in)
    return pause_s if unanswered else None


@cache
def _breaker(provider: str) -> Breaker:
    return Breaker(ProviderSilent, server="provider", pause_s=SILENT_PAUSE_S)
