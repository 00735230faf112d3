"""The state of a payment while its buyer waits for it, back from the provider's page.

The provider may report late or never, and some need a moment before they know of their own payment.
So the receipt says "confirming" until the provider has said something, for a limited time.
"""

import datetime as dt
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from orders.models import OrderStatus, Payment, PaymentStatus
from seckill_site.clocks.machine import epoch_ms

SETTLE_FOR = dt.timedelta(seconds=2)
"""The time for which a provider may call a charge open that has just been paid."""

CONFIRM_FOR = dt.timedelta(minutes=1)
"""The longest time for which a receipt without an answer of the provider offers no payment."""


class PaymentState(StrEnum):
    """What is known of a payment; a part of the HTTP contract."""

    NONE = ""
    OPEN = "open"
    """The order has ended, and may still be paid by mistake."""
    CONFIRMING = "confirming"
    SILENT = "silent"
    """As confirming, and the provider does not respond."""
    UNCONFIRMED = "unconfirmed"
    """No answer for ``CONFIRM_FOR``."""
    NOT_PAID = "not_paid"


BEING_CONFIRMED = (PaymentState.CONFIRMING, PaymentState.SILENT)


class PaymentView(NamedTuple):
    """A payment's state, and until when it may count as being confirmed."""

    state: PaymentState = PaymentState.NONE
    confirm_until_ms: int = 0

    def state_at(self, now_ms: int) -> PaymentState:
        """Return the state at that moment."""
        late = self.state in BEING_CONFIRMED and now_ms >= self.confirm_until_ms
        return PaymentState.UNCONFIRMED if late else self.state


NO_PAYMENT = PaymentView()


def is_unanswered(payment: Payment) -> bool:
    """Return whether the buyer is back, and the provider has not said since what happened."""
    if payment.returned_at is None or payment.status != PaymentStatus.OPEN:
        return False
    found_at = payment.found_open_at
    return found_at is None or found_at < payment.returned_at + SETTLE_FOR


def view_of_payments(payments: Iterable[Payment], *, status: str) -> PaymentView:
    """Return what the buyer of an order in this status is told of its payments."""
    if status not in (OrderStatus.UNPAID, OrderStatus.CANCELLED, OrderStatus.EXPIRED):
        return NO_PAYMENT
    has_ended = status != OrderStatus.UNPAID
    undecided = (PaymentStatus.OPEN, PaymentStatus.CLOSED)
    ours = [it for it in payments if it.provider and it.status in undecided]
    unanswered = [it for it in ours if is_unanswered(it)]
    if unanswered:
        latest = max(it.returned_at for it in unanswered if it.returned_at)
        silent = any(it.silent_since for it in unanswered)
        state = PaymentState.SILENT if silent else PaymentState.CONFIRMING
        return PaymentView(state, epoch_ms(latest + CONFIRM_FOR))
    if has_ended:
        is_open = any(it.status == PaymentStatus.OPEN and it.ask_at for it in ours)
        return PaymentView(PaymentState.OPEN) if is_open else NO_PAYMENT
    returned = any(it.returned_at for it in ours)
    return PaymentView(PaymentState.NOT_PAID) if returned else NO_PAYMENT
