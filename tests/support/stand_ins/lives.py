"""The stand-ins of all providers, and steps of a payment's life at one of them.

A new provider adds its stand-in to ``STAND_INS``, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from django.utils import timezone

from orders.models import Payment, VoucherOrder
from orders.payments.providers import ClientKind
from orders.payments.service import start_payment, take_notification
from tests.support.orders import make_sale
from tests.support.payments import ADDRESSES, make_unpaid_order, status_of
from tests.support.stand_ins.alipay import AlipayStandIn
from tests.support.stand_ins.sandbox import SandboxStandIn
from tests.support.stand_ins.server import StandIn
from tests.support.stand_ins.stripe import StripeStandIn
from tests.support.stand_ins.wechat import WeChatStandIn
from tests.support.tiers import slow_after

STAND_INS: tuple[type[StandIn], ...] = (
    SandboxStandIn,
    StripeStandIn,
    AlipayStandIn,
    WeChatStandIn,
)
OVER_HTTP = STAND_INS[1:]


def at_each(stand_ins: Iterable[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("at", stand_ins, indirect=True, ids=lambda it: it.name)


each_provider = at_each(STAND_INS)
"""For the tests that show a provider itself in the default tier."""

everywhere = at_each(slow_after(2, STAND_INS))
over_http = at_each(slow_after(1, OVER_HTTP))
"""For the others: most providers are in the slow tier."""


def opened(at: StandIn, order: VoucherOrder, client: ClientKind = ClientKind.DESKTOP) -> Payment:
    """Send the buyer to the provider's page."""
    url = start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now(), client=client)
    at.visit(url)
    return Payment.objects.filter(order=order).latest("pk")


def charged(at: StandIn) -> tuple[VoucherOrder, Payment]:
    """Return an order and its payment, of which the shop has not heard yet."""
    order = make_unpaid_order(make_sale())
    payment = opened(at, order)
    at.pay(payment.reference)
    return order, payment


def notify(at: StandIn, payment: Payment, *, late_s: float = 0, **how: Any) -> str:
    """Notify the shop, with a notification signed so many seconds ago."""
    now = timezone.now()
    headers, body = at.notification(payment.reference, at_s=now.timestamp() - late_s, **how)
    return take_notification(provider_name=at.name, headers=headers, body=body, now=now)


def paid(at: StandIn, order: VoucherOrder) -> Payment:
    payment = opened(at, order)
    at.pay(payment.reference)
    notify(at, payment)
    assert status_of(order) == "paid"
    return payment


def refunded_everywhere(at: StandIn, payment: Payment) -> bool:
    payment.refresh_from_db()
    trade = at.trades[payment.reference]
    if at.name != "sandbox":
        assert trade.refunded_cents + trade.by_hand_cents == trade.amount_cents
    return payment.status == "refunded" and payment.refunded_at is not None


def tell_of_money(at: StandIn, payment: Payment, identity: str = "money") -> str:
    """Notify the shop of money that went back at the provider, or is disputed."""
    return tell(at, at.money_message(payment.reference, identity))


def tell(at: StandIn, message: dict[str, Any]) -> str:
    """Notify the shop of what a signed message says."""
    now = timezone.now()
    headers, body = at.signed(message, at_s=now.timestamp())
    return take_notification(provider_name=at.name, headers=headers, body=body, now=now)
