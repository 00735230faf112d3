"""A purchase's money in any order of events: the shares are the charge, and no cent goes twice."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from typing import NamedTuple

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from orders.lifecycle.cancellation import cancel_order, end_orders
from orders.lifecycle.redemption import NotRedeemable, redeem
from orders.lifecycle.transitions import SYSTEM, Actor, Change, WrongState
from orders.models import FOR_STAFF, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import ChargeState, ProviderUnavailable
from orders.payments.refunds import Decision, decide, finish_refunds, refund_order
from orders.payments.service import poll_payments, start_payment, take_notification
from seckill_site.failpoints import FailpointReached, armed
from tests.support.inspection import assert_conserved
from tests.support.orders import PRICE_CENTS, make_sale
from tests.support.payments import ADDRESSES, GOOD, FakeProvider, make_unpaid_purchase

pytestmark = pytest.mark.django_db

STAFF = Actor.staff(None)
UNITS = 3
KEPT = (OrderStatus.PAID, OrderStatus.USED)

STEPS = (
    "open", "pay", "tell", "poll", "refund", "use", "cancel", "end_one", "by_hand", "crash",
    "finish", "away",
)  # fmt: skip


class Step(NamedTuple):
    what: str
    unit: int
    cents: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(STEPS),
        st.integers(0, UNITS - 1),
        st.sampled_from([3_000, PRICE_CENTS, 2 * PRICE_CENTS]),
    ),
    max_size=14,
)


class World:
    """A purchase, its charges at the fake provider, and what may happen to them."""

    def __init__(self, fake: FakeProvider, *, names_refunds: bool) -> None:
        self.fake, self.names_refunds = fake, names_refunds
        fake.away = False
        for books in (fake.charges, fake.says, fake.gone):
            books.clear()
        Payment.objects.all().delete()
        self.sale = make_sale(limit=6)
        self.orders = make_unpaid_purchase(self.sale, UNITS)
        self.now = timezone.now()
        self.by_hands = 0

    def take(self, step: Step) -> None:
        self.now += dt.timedelta(minutes=1)
        charges = list(self.fake.charges)
        charge = charges[step.unit % len(charges)] if charges else ""
        order_id = self.orders[step.unit].pk
        with suppress(WrongState, ProviderUnavailable, NotRedeemable, FailpointReached):
            if step.what in ("tell", "by_hand", "pay"):
                if charge and (step.what == "pay" or self.is_paid(charge)):
                    getattr(self, step.what)(charge, *[step.cents] * (step.what == "by_hand"))
            else:
                getattr(self, step.what)(order_id)

    def is_paid(self, charge: str) -> bool:
        return self.fake.says.get(charge) is ChargeState.PAID

    def open(self, order_id: int) -> None:
        start_payment(order_id=order_id, **ADDRESSES, now=timezone.now())

    def pay(self, charge: str) -> None:
        self.fake.says[charge] = ChargeState.PAID

    def poll(self, _: int) -> None:
        poll_payments(now=self.now + dt.timedelta(hours=1))

    def refund(self, order_id: int) -> None:
        refund_order(order_id=order_id, by=STAFF, now=self.now)

    def crash(self, order_id: int) -> None:
        """Die after the provider has refunded, and before we note it."""
        with armed("refund.told=raise"):
            self.refund(order_id)

    def use(self, order_id: int) -> None:
        code = VoucherOrder.objects.values_list("code", flat=True).get(pk=order_id)
        if code:
            redeem(code=code, by=STAFF, now=self.now)

    def cancel(self, order_id: int) -> None:
        cancel_order(order_id=order_id, by=STAFF, now=self.now)

    def end_one(self, order_id: int) -> None:
        """Cancel one unit, as the release before does, which knows no purchases."""
        ended = Change(OrderStatus.CANCELLED, SYSTEM, self.now)
        end_orders(ended, sale_id=self.sale.pk, order_ids=[order_id])

    def by_hand(self, charge: str, cents: int) -> None:
        gone = self.fake.gone.setdefault(charge, {})
        left = self.fake.charges[charge].amount_cents - sum(gone.values())
        self.by_hands += 1
        gone[f"by-hand-{self.by_hands}"] = min(cents, left)

    def finish(self, _: int) -> None:
        finish_refunds(now=self.now + dt.timedelta(hours=1))

    def away(self, _: int) -> None:
        self.fake.away = not self.fake.away

    def tell(self, reference: str) -> None:
        gone = self.fake.gone.get(reference, {})
        said = {
            "reference": reference,
            "state": "paid",
            "amount_cents": self.fake.charges[reference].amount_cents,
            "refunded_cents": sum(gone.values()),
        }
        if self.names_refunds:
            said["numbers"] = list(gone)
        body = json.dumps(said).encode()
        take_notification(provider_name="fake", headers=GOOD, body=body, now=self.now)

    def check(self) -> None:
        for reference, charge in self.fake.charges.items():
            shares = Payment.objects.get(reference=reference).list_shares()
            assert sum(it.amount_cents for it in shares) == charge.amount_cents
            gone = self.fake.gone.get(reference, {})
            assert sum(gone.values()) <= charge.amount_cents
            if not any(it.startswith("by-hand") for it in gone):
                assert sum(it.refunded_cents for it in shares) <= sum(gone.values())

    def end(self) -> None:
        """Let all that is known arrive, and staff decide what waits for them."""
        self.fake.away = False
        for _ in range(4):
            for charge in filter(self.is_paid, self.fake.charges):
                self.tell(charge)
            self.now += dt.timedelta(hours=1)
            finish_refunds(now=self.now)
            waiting = Payment.objects.filter(status__in=FOR_STAFF)
            for payment in waiting.exclude(order__status=OrderStatus.USED):
                rest = Decision.REFUND_REST
                decide(rest, payment_id=payment.pk, by=STAFF, now=self.now)

    def check_end(self) -> None:
        """Check that what was paid has gone back, or has its valid voucher."""
        assert not Payment.objects.filter(status=PaymentStatus.REFUNDING).exists()
        for reference, charge in self.fake.charges.items():
            gone = sum(self.fake.gone.get(reference, {}).values())
            shares = Payment.objects.get(reference=reference).list_shares()
            assert sum(it.refunded_cents for it in shares) == gone
            kept = [it for it in shares if it.settles and it.order.status in KEPT]
            owed = sum(it.amount_cents - it.refunded_cents for it in kept)
            assert owed + gone == charge.amount_cents * self.is_paid(reference)
        assert_conserved(self.sale)


@pytest.mark.slow
@effort(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(taken=steps, is_paid=st.booleans(), names_refunds=st.booleans())
def test_shares_are_the_charge_in_any_order(
    fake: FakeProvider, taken: list[Step], is_paid: bool, names_refunds: bool
) -> None:
    world = World(fake, names_refunds=names_refunds)
    before = [Step(it, 0, 0) for it in ("open", "pay", "tell")] if is_paid else []
    for step in before + taken:
        world.take(step)
        world.check()
    world.end()
    world.check()
    world.check_end()
