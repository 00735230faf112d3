"""Refunds: money and unit go back once, despite outages and crashes."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.redemption import redeem
from orders.lifecycle.transitions import Actor, WrongState
from orders.models import (
    ActorKind,
    OrderEvent,
    OrderStatus,
    Payment,
    PaymentStatus,
    VoucherOrder,
)
from orders.payments.providers import LONGEST_PAUSE_S, ChargeState, Refund
from orders.payments.refunds import (
    REFUNDS_AT_ONCE,
    NotRefundable,
    finish_refund,
    finish_refunds,
    refund_order,
)
from orders.payments.service import start_payment
from seckill_site.failpoints import FailpointReached, armed
from tests.fixtures.site import RedisGone
from tests.support.inspection import assert_conserved, assert_refused, buyers_of, live_ids, rows
from tests.support.orders import at_once, make_buyer, make_buyers, make_order, make_sale, race
from tests.support.payments import (
    ADDRESSES,
    FakeProvider,
    buyer_of,
    history,
    make_payment,
    make_unpaid_order,
    notify_of_fake,
    notify_shop,
    owner_of,
    pay,
    payment_status,
    receipt_url,
    status_of,
    trade_state,
)
from tests.support.tiers import slow_after
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

STAFF = Actor.staff(None)
AN_HOUR = dt.timedelta(hours=1)
WHOLE = [
    "unpaid by system",
    "paid by provider",
    "refunding by buyer",
    "refunded by system",
]


def paid_at_fake(order: VoucherOrder) -> Payment:
    payment = make_payment(order)
    notify_of_fake(payment)
    assert status_of(order) == "paid"
    return payment


def assert_unit_is_back(sale: SeckillVoucher) -> None:
    """Assert that no unit of this sale is held in database or ledger."""
    assert_conserved(sale)
    assert (sale.sold, live_ids(sale), buyers_of(sale)) == (0, [], {})
    assert snapshot(sale_id=sale.pk).remaining == sale.stock


# --- From paid to refunded -----------------------------------------------------------------------


def test_refund_returns_money_and_unit() -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = pay(order)
    before = timezone.now()
    refund_order(order_id=order.pk, by=buyer_of(order), why="changed my mind", now=timezone.now())

    payment.refresh_from_db()
    assert (status_of(order), payment.status, payment.ask_at) == ("refunded", "refunded", None)
    assert trade_state(payment) == "refunded"
    assert history(order) == WHOLE
    first, second = OrderEvent.objects.filter(order=order).order_by("-pk")[:2][::-1]
    assert (first.before, first.actor_kind, first.actor_id, first.reason) == (
        "paid", ActorKind.BUYER, order.user_id, "changed my mind",
    )  # fmt: skip
    assert (second.before, second.actor_kind, second.actor_id) == (
        "refunding", ActorKind.SYSTEM, None,
    )  # fmt: skip
    assert before <= first.at <= second.at <= timezone.now()
    assert_unit_is_back(sale)


def test_free_order_is_refunded_without_provider() -> None:
    sale = make_sale()
    Voucher.objects.update(price_cents=0)
    order = make_unpaid_order(sale)
    start_payment(order_id=order.pk, **ADDRESSES, now=timezone.now())
    refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())
    assert (status_of(order), Payment.objects.get().status) == ("refunded", "refunded")
    assert_unit_is_back(sale)


# --- Who may, and when ---------------------------------------------------------------------------


def assert_refusal(order: VoucherOrder, by: Actor, error: type[Exception]) -> Any:
    before = rows(), list(Payment.objects.values_list())
    with pytest.raises(error) as refused:
        refund_order(order_id=order.pk, by=by, now=timezone.now())
    assert (rows(), list(Payment.objects.values_list())) == before
    return refused.value


def test_non_refundable_sale_lets_only_staff_refund(client: Client) -> None:
    sale = make_sale(refundable=False)
    order = make_unpaid_order(sale)
    payment = pay(order)
    assert_refusal(order, buyer_of(order), NotRefundable)
    client.force_login(owner_of(order))
    assert client.get(receipt_url(order)).json()["refundable"] is False
    assert_refused(client.post(f"{receipt_url(order)}refund/"), 409, "not_refundable")
    assert trade_state(payment) == "paid"

    refund_order(order_id=order.pk, by=STAFF, why="goodwill", now=timezone.now())
    assert status_of(order) == "refunded"
    assert history(order)[2:] == ["refunding by staff", "refunded by system"]
    assert_unit_is_back(sale)


@pytest.mark.parametrize("status", slow_after(1, sorted(set(OrderStatus) - {OrderStatus.PAID})))
def test_only_paid_orders_are_refunded(status: OrderStatus) -> None:
    reason = "sold_out" if status == OrderStatus.REFUSED else ""
    order = make_order(make_sale(), make_buyer(), status=status, reason=reason)
    for by in (buyer_of(order), STAFF):
        assert assert_refusal(order, by, WrongState).status == status


def test_refund_of_missing_order_raises() -> None:
    with pytest.raises(VoucherOrder.DoesNotExist):
        refund_order(order_id=404, by=STAFF, now=timezone.now())


# --- A provider that is away, or slow ------------------------------------------------------------


def test_unavailable_provider_is_asked_until_refunded(fake: FakeProvider) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    payment = paid_at_fake(order)
    fake.away = True
    refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())
    assert (status_of(order), payment_status(payment)) == ("refunding", "refunding")
    assert live_ids(sale) == [order.pk], "the unit is held until the money is back"
    assert_conserved(sale)

    now, pauses_s = timezone.now(), []
    for _ in range(9):
        payment.refresh_from_db()
        assert payment.ask_at is not None
        pauses_s.append(round((payment.ask_at - now).total_seconds()))
        now = payment.ask_at
        assert finish_refunds(now=now - dt.timedelta(seconds=1)) == 0
        assert finish_refunds(now=now) == 0
    assert pauses_s == [5, 10, 20, 40, 80, 160, 320, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert len(fake.refunds) == 10

    fake.away = False
    assert finish_refunds(now=now + AN_HOUR) == 1
    assert history(order) == WHOLE
    assert payment_status(payment) == "refunded"
    assert finish_refunds(now=now + 2 * AN_HOUR) == 0
    assert_unit_is_back(sale)


def test_failing_refund_does_not_stop_the_others(fake: FakeProvider) -> None:
    sale = make_sale(stock=3)
    make_unpaid_order(sale, make_buyers(3))
    orders = list(VoucherOrder.objects.order_by("pk"))
    fake.slow = True
    for order in orders:
        paid_at_fake(order)
        refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    fake.slow = False
    Payment.objects.filter(order=orders[0]).update(provider="gone")
    assert finish_refunds(now=timezone.now() + AN_HOUR) == 2
    assert [status_of(it) for it in orders] == ["refunding", "refunded", "refunded"]
    assert_conserved(sale)


def test_refund_walk_stops_after_its_time(fake: FakeProvider) -> None:
    order = make_unpaid_order(make_sale())
    paid_at_fake(order)
    (charge,) = fake.charges.values()
    for number in range(REFUNDS_AT_ONCE + 5):
        payment = Payment.objects.create(
            order=order,
            reference=f"many-{number}",
            provider="fake",
            amount_cents=order.price_cents,
            status=PaymentStatus.REFUNDING,
            ask_at=timezone.now(),
        )
        fake.charges[payment.reference] = charge
    now = timezone.now()
    assert [finish_refunds(now=now) for _ in range(3)] == [REFUNDS_AT_ONCE, 5, 0]
    assert status_of(order) == "paid", "money beside the order's own leaves it alone"


def test_late_payments_refund_does_not_end_the_order(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    late = make_payment(order)
    notify_of_fake(late, ChargeState.CLOSED)
    own = paid_at_fake(order)
    notify_of_fake(late)
    with monkeypatch.context() as patch:
        patch.setattr(fake, "refund", lambda refund: refund.reference == late.reference)
        refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    assert (payment_status(late), payment_status(own)) == ("refunded", "refunding")
    assert (status_of(order), live_ids(sale)) == ("refunding", [order.pk])
    assert_conserved(sale)
    finish_refunds(now=timezone.now() + AN_HOUR)
    assert status_of(order) == "refunded"
    assert_unit_is_back(sale)


# --- Told twice ----------------------------------------------------------------------------------


@pytest.fixture
def open_refund(fake: FakeProvider) -> Payment:
    """A refund of which the provider has not heard."""
    order = make_unpaid_order(make_sale(stock=2))
    payment = paid_at_fake(order)
    fake.away = True
    refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())
    fake.away = False
    fake.refunds.clear()
    return Payment.objects.select_related("order").get(pk=payment.pk)


def test_of_two_workers_with_the_same_refund_one_asks(
    fake: FakeProvider, open_refund: Payment
) -> None:
    fake.slow = True
    same = Payment.objects.get(pk=open_refund.pk)
    for look in (open_refund, same):
        assert not finish_refund(look, now=timezone.now() + AN_HOUR)
    assert fake.refunds == [open_refund.reference]


def test_refund_that_is_finished_while_its_provider_is_asked_again_changes_nothing(
    fake: FakeProvider, open_refund: Payment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker waits for so long that a second one asks, and is done before it."""
    sale, refund, others = open_refund.order.seckill_voucher, fake.refund, list[VoucherOrder]()

    def ask_again(asked: Refund) -> bool:
        monkeypatch.setattr(fake, "refund", refund)
        assert finish_refunds(now=timezone.now() + 2 * AN_HOUR) == 1
        others.append(make_unpaid_order(sale))
        return refund(asked)

    monkeypatch.setattr(fake, "refund", ask_again)
    assert finish_refund(open_refund, now=timezone.now() + AN_HOUR)
    assert history(open_refund.order) == WHOLE
    open_refund.refresh_from_db()
    assert (open_refund.status, open_refund.ask_at) == ("refunded", None)
    assert live_ids(sale) == [others[0].pk]
    assert_conserved(sale)


def test_notification_after_refund_changes_nothing() -> None:
    order = make_unpaid_order(make_sale())
    payment = pay(order)
    refund_order(order_id=order.pk, by=STAFF, now=timezone.now())
    for state in ("paid", "closed", "open"):
        notify_shop(payment, state=state)
    assert (status_of(order), payment_status(payment)) == ("refunded", "refunded")
    assert len(history(order)) == 4


# --- Whoever dies --------------------------------------------------------------------------------

POINTS = {
    "refund.before_commit": "paid",
    "refund.committed": "refunding",
    "refund.told": "refunding",
    "refund.closing": "refunding",
    "refund.closed": "refunded",
    "end.released": "refunded",
}
"""The point of the crash, and the order's state afterwards."""


def repeat(order: VoucherOrder, by: Actor, sale: SeckillVoucher) -> None:
    """Repeat what happens again by itself: the buyer's click, and ``beat``."""
    if status_of(order) == "paid":
        refund_order(order_id=order.pk, by=by, now=timezone.now())
    finish_refunds(now=timezone.now() + AN_HOUR)
    reconcile(sale_id=sale.pk, repair=True)
    fulfil_sale(sale_id=sale.pk)


@pytest.mark.parametrize("point", slow_after(1, POINTS))
def test_refund_survives_a_crash_at_any_step(point: str) -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = pay(order)
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())
    assert status_of(order) == POINTS[point]
    assert trade_state(payment) == (
        "paid" if point in ("refund.before_commit", "refund.committed") else "refunded"
    )

    repeat(order, buyer_of(order), sale)
    assert history(order) == WHOLE
    assert (payment_status(payment), trade_state(payment)) == ("refunded", "refunded")
    assert_unit_is_back(sale)
    assert reconcile(sale_id=sale.pk).difference == 0
    repeat(order, buyer_of(order), sale)
    assert_unit_is_back(sale)


@pytest.mark.parametrize("point", slow_after(1, ["refund.told", "refund.closing", "refund.closed"]))
def test_late_payment_is_refunded_once_despite_a_crash(point: str, fake: FakeProvider) -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    payment = make_payment(order)
    VoucherOrder.objects.filter(pk=order.pk).update(status="expired", live=None)
    SeckillVoucher.objects.update(sold=0)
    notify_of_fake(payment)
    now = timezone.now()
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        finish_refunds(now=now)
    finish_refunds(now=now + AN_HOUR)
    assert (status_of(order), payment_status(payment)) == ("expired", "refunded")
    assert history(order)[1:] == ["expired by provider"], "the word to the buyer"


def test_refund_finishes_without_redis(fake: FakeProvider, redis_gone: RedisGone) -> None:
    sale = make_sale(stock=1)
    order = make_unpaid_order(sale)
    paid_at_fake(order)
    fake.slow = True
    refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())
    fake.slow = False
    with redis_gone():
        assert finish_refunds(now=timezone.now() + AN_HOUR) == 1
    assert (status_of(order), len(buyers_of(sale))) == ("refunded", 1)
    reconcile(sale_id=sale.pk, repair=True)
    fulfil_sale(sale_id=sale.pk)
    assert_unit_is_back(sale)


# --- Races ---------------------------------------------------------------------------------------


@race
def test_concurrent_refunds_succeed_once(fake: FakeProvider) -> None:
    sale = make_sale(stock=2)
    order = make_unpaid_order(sale)
    payment = paid_at_fake(order)
    answers = at_once(
        *[lambda: refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())] * 4
    )
    assert sorted(type(it).__name__ for it in answers) == ["NoneType", *["WrongState"] * 3]
    assert history(order) == WHOLE
    assert payment_status(payment) == "refunded"
    assert_unit_is_back(sale)


@pytest.mark.slow
@race
def test_refund_racing_redemption_succeeds_once(fake: FakeProvider) -> None:
    for _ in range(10):
        sale = make_sale(stock=1)
        order = make_unpaid_order(sale)
        paid_at_fake(order)
        order.refresh_from_db()
        refunded, used = at_once(
            partial(refund_order, order_id=order.pk, by=STAFF, now=timezone.now()),
            partial(redeem, code=order.code or "", by=STAFF, now=timezone.now()),
        )
        assert isinstance(refunded, WrongState) != isinstance(used, Exception)
        assert status_of(order) == ("used" if isinstance(refunded, WrongState) else "refunded")
        assert_conserved(sale)


@pytest.mark.slow
@race
def test_concurrent_refund_workers_return_units_once(fake: FakeProvider) -> None:
    count = 30
    sale = make_sale(stock=count)
    make_unpaid_order(sale, make_buyers(count))
    orders = list(VoucherOrder.objects.all())
    fake.slow = True
    for order in orders:
        paid_at_fake(order)
        refund_order(order_id=order.pk, by=buyer_of(order), now=timezone.now())
    fake.slow = False
    later = timezone.now() + AN_HOUR
    answers = at_once(*[lambda: finish_refunds(now=later)] * 3)
    assert all(isinstance(it, int) for it in answers), answers
    assert {status_of(order) for order in orders} == {"refunded"}
    assert all(history(order) == WHOLE for order in orders)
    assert_unit_is_back(sale)
