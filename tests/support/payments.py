"""Helpers of the payment tests: orders in each state, and a fake provider."""

from __future__ import annotations

import datetime as dt
import json
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.redemption import redeem, undo
from orders.lifecycle.transitions import Actor
from orders.models import (
    OrderEvent,
    OrderStatus,
    Payment,
    PaymentStatus,
    SandboxTrade,
    VoucherOrder,
)
from orders.payments import expiry, providers
from orders.payments.providers import (
    BadNotification,
    Charge,
    ChargeState,
    Movement,
    OpenedCharge,
    ProviderUnavailable,
    Refund,
    RefundRefused,
    Statement,
)
from orders.payments.sandbox import SIGNATURE_HEADER, Choice, decide, notification, sign, state_of
from orders.payments.service import start_payment, take_notification
from seckill_site.clocks.steps import Clocks
from tests.support.orders import make_buyers, make_sale, reserved, reserved_purchase
from vouchers.models import SeckillVoucher


def expire_all(*, clocks: Clocks) -> int:
    """Let both tasks expire what is due; return how many orders did."""
    expired = VoucherOrder.objects.filter(status=OrderStatus.EXPIRED)
    before = expired.count()
    while expiry.expire_orders(clocks=clocks):
        pass
    expiry.expire_being_paid(clocks=clocks)
    return expired.count() - before


ADDRESSES: dict[str, Any] = {
    "return_url": "https://shop.example/vouchers/1/orders/2/",
    "notify_url": "https://shop.example/payments/sandbox/notify/",
}

FAKE = "tests.support.payments.FakeProvider"
GOOD = {"Signed-By": "fake"}


class FakeProvider:
    """A provider of which a test says what it answers, and whether it answers at all."""

    name = "fake"
    label = "Fake"
    acknowledgement = "OK"
    by_client = False
    code_apps: Mapping[str, str] = {}
    zone: zoneinfo.ZoneInfo | None = None

    def __init__(self) -> None:
        self.away = False
        self.slow = False
        self.charges: dict[str, Charge] = {}
        self.says: dict[str, ChargeState] = {}
        self.asked: list[str] = []
        self.refunds: list[str] = []
        self.gone: dict[str, dict[str, int]] = {}
        """What has gone back of each charge, by the number of the refund."""

        self.movements: list[Movement] = []
        self.when_asked: Callable[[], None] = lambda: None

    def create(self, charge: Charge) -> OpenedCharge:
        self._answer()
        self.charges[charge.reference] = charge
        self.says[charge.reference] = ChargeState.OPEN
        return OpenedCharge(f"https://pay.example/{charge.reference}")

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement:
        if dict(headers) != GOOD:
            raise BadNotification("by the test")
        content = json.loads(body)
        return Statement(**{**content, "state": ChargeState(content["state"])})

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        self.asked.append(reference)
        self.when_asked()
        self._answer()
        charge = self.charges.get(reference)
        state = self.says.get(reference, ChargeState.CLOSED)
        return Statement(reference, state, charge.amount_cents if charge else 0)

    def refund(self, refund: Refund) -> bool:
        self.refunds.append(refund.reference)
        self._answer()
        charge = self.charges[refund.reference]
        assert refund.charged_cents == charge.amount_cents
        if not self.slow:
            gone = self.gone.setdefault(refund.reference, {})
            if sum({**gone, refund.number: refund.amount_cents}.values()) > charge.amount_cents:
                raise RefundRefused("so much is not left")
            gone[refund.number] = refund.amount_cents
        return not self.slow

    def list_movements(self, day: dt.date) -> list[Movement]:
        self._answer()
        return self.movements

    def _answer(self) -> None:
        if self.away:
            raise ProviderUnavailable("by the test")


def use_fake(settings: Any) -> FakeProvider:
    """Make a new fake provider that of new payments, the sandbox being known as well."""
    settings.SECKILL_PAYMENT_PROVIDERS = [FAKE, "orders.payments.sandbox.Sandbox"]
    providers._load.cache_clear()
    found = providers.current_provider()
    assert isinstance(found, FakeProvider)
    return found


# --- Orders and their payments --------------------------------------------------------------------


def make_unpaid_order(sale: SeckillVoucher, buyers: list[User] | None = None) -> VoucherOrder:
    """Make an unpaid order for a new buyer, or for each of these; return the first."""
    tokens = reserved(sale, buyers or make_buyers(1))
    while fulfil_sale(sale_id=sale.pk):
        pass
    order = VoucherOrder.objects.get(pk=tokens[0].order_id)
    assert order.status == OrderStatus.UNPAID
    return order


def make_unpaid_purchase(
    sale: SeckillVoucher, quantity: int, *, buyer: User | None = None
) -> list[VoucherOrder]:
    """Make an unpaid order for each unit of one press; return them by id."""
    order_ids = reserved_purchase(sale, buyer or make_buyers(1)[0], quantity)
    while fulfil_sale(sale_id=sale.pk):
        pass
    orders = list(VoucherOrder.objects.filter(pk__in=order_ids).order_by("pk"))
    assert [it.status for it in orders] == [OrderStatus.UNPAID] * quantity
    return orders


def let_time_run_out(order: VoucherOrder, left: dt.timedelta = dt.timedelta(minutes=1)) -> None:
    """Have an unpaid order accepted and written earlier, with so much time left to pay."""
    assert order.pay_by
    earlier = order.pay_by - timezone.now() - left
    order.pay_by, order.created_at = order.pay_by - earlier, order.created_at - earlier
    order.accepted_at -= earlier
    order.save(update_fields=["pay_by", "created_at", "accepted_at"])


def owner_of(order: VoucherOrder) -> User:
    assert order.user is not None
    return order.user


def buyer_of(order: VoucherOrder) -> Actor:
    return Actor.buyer(owner_of(order).pk)


def make_payment(order: VoucherOrder, addresses: dict[str, Any] = ADDRESSES) -> Payment:
    """Start a payment and return it."""
    start_payment(order_id=order.pk, **addresses, now=timezone.now())
    return Payment.objects.filter(order=order).latest("pk")


def order_with_payment(**terms: Any) -> tuple[VoucherOrder, Payment]:
    """Return an unpaid order of a new sale, and its open payment."""
    order = make_unpaid_order(make_sale(**terms))
    return order, make_payment(order)


def choose_outcome(payment: Payment, choice: Choice = Choice.PAY) -> None:
    """Choose on the sandbox's page as a buyer would; the shop is not notified yet."""
    decide(reference=payment.reference, choice=choice, now=timezone.now())


def notification_of(payment: Payment, **changes: Any) -> tuple[dict[str, str], bytes]:
    """Return the headers and body of the sandbox's signed notification, with these changes."""
    trade = SandboxTrade.objects.get(reference=payment.reference)
    body = json.loads(notification(trade, state_of(trade, now=timezone.now())))
    return sign_body(json.dumps({**body, **changes}).encode())


def sign_body(body: bytes) -> tuple[dict[str, str], bytes]:
    return {SIGNATURE_HEADER: sign(body, settings.SECKILL_SANDBOX_KEY)}, body


def notify_shop(payment: Payment, **changes: Any) -> str:
    """Notify the shop of the sandbox's current state of a payment."""
    headers, body = notification_of(payment, **changes)
    return take_notification(
        provider_name="sandbox", headers=headers, body=body, now=timezone.now()
    )


def notify_of_fake(payment: Payment, state: ChargeState = ChargeState.PAID) -> str:
    """Notify the shop of a payment at the fake provider, whatever a query returns."""
    body = {"reference": payment.reference, "state": state, "amount_cents": payment.charged_cents}
    content = json.dumps(body).encode()
    return take_notification(provider_name="fake", headers=GOOD, body=content, now=timezone.now())


def pay(order: VoucherOrder) -> Payment:
    """Pay in the sandbox and notify the shop; what is unpaid of a purchase is paid together."""
    payment = make_payment(order)
    charge = payment.charge or payment
    choose_outcome(charge)
    notify_shop(charge)
    payment.refresh_from_db()
    assert payment.status == PaymentStatus.PAID
    return payment


def pay_all(orders: Iterable[VoucherOrder]) -> None:
    """Pay what is unpaid of a purchase, and read its orders again."""
    for order in orders:
        if status_of(order) == OrderStatus.UNPAID:
            pay(order)
    for order in orders:
        order.refresh_from_db()


def expire_pay_by(order: VoucherOrder) -> dt.datetime:
    """Let the time to pay expire, and return the current time."""
    now = timezone.now()
    VoucherOrder.objects.filter(pk=order.pk).update(pay_by=now - dt.timedelta(seconds=1))
    return now


# --- Looking --------------------------------------------------------------------------------------


def status_of(order: VoucherOrder) -> str:
    return VoucherOrder.objects.values_list("status", flat=True).get(pk=order.pk)


def payment_status(payment: Payment) -> str:
    return Payment.objects.values_list("status", flat=True).get(pk=payment.pk)


def trade_state(payment: Payment) -> str:
    trades = SandboxTrade.objects.values_list("state", flat=True)
    return trades.get(reference=payment.reference)


def history(order: VoucherOrder) -> list[str]:
    """Return the states that the order came to, and who brought it there."""
    events = OrderEvent.objects.filter(order=order).values_list("after", "actor_kind")
    return [f"{after} by {who}" for after, who in events]


def notify_url(provider: str = "sandbox") -> str:
    return reverse("notify", args=[provider])


def receipt_url(order: VoucherOrder) -> str:
    return reverse("receipt", args=[order.seckill_voucher_id, order.pk])


def use_and_undo(order: VoucherOrder) -> None:
    """Redeem the voucher of a paid order by mistake, and take that back."""
    now = timezone.now()
    order.refresh_from_db()
    used = redeem(code=order.code or "", by=Actor.staff(None), now=now).redeemable.use
    assert used
    undo(event_id=used.pk, by=Actor.staff(None), now=now)
