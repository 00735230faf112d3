"""Confirmation: a buyer who is back from the provider learns soon what became of the payment."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM
from orders.models import Payment, PaymentStatus, VoucherOrder
from orders.payments.confirmation import (
    LOST_AFTER_S,
    PAUSE_S,
    SILENT_PAUSE_S,
    confirm_payments,
    note_return,
)
from orders.payments.providers import ChargeState
from orders.payments.service import FIRST_ASK_S, TRUSTED_FOR, poll_payments
from orders.receipts.payment_state import CONFIRM_FOR, SETTLE_FOR
from orders.receipts.service import find_receipt
from orders.tasks import confirm_payments as confirm_task
from seckill_site.clocks.machine import epoch_ms
from seckill_site.process_memory import forget_everything
from tests.support.inspection import broker_length, empty_broker
from tests.support.orders import make_sale
from tests.support.payments import (
    FakeProvider,
    expire_pay_by,
    make_payment,
    make_unpaid_order,
    notify_of_fake,
    payment_status,
    status_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake")]

SECOND = dt.timedelta(seconds=1)


@pytest.fixture
def order() -> VoucherOrder:
    return make_unpaid_order(make_sale())


@pytest.fixture
def payment(order: VoucherOrder) -> Payment:
    return make_payment(order)


def seen(order: VoucherOrder, *, after: dt.timedelta = dt.timedelta()) -> str:
    """Return the payment's state as the receipt shows it after this time."""
    assert order.user_id
    found = find_receipt(sale_id=order.seckill_voucher_id, order_id=order.pk, user_id=order.user_id)
    return found.payment.state_at(epoch_ms(timezone.now() + after))


def back(order: VoucherOrder) -> dt.datetime:
    """Let the buyer come back from the provider now."""
    now = timezone.now()
    note_return(order=order, now=now)
    return now


def test_return_without_payment_changes_nothing(order: VoucherOrder) -> None:
    empty_broker()
    back(order)
    assert seen(order) == ""
    assert broker_length() == 0


def test_return_is_confirmed_by_one_message(order: VoucherOrder, payment: Payment) -> None:
    assert seen(order) == ""
    empty_broker()
    back(order)
    back(order)
    assert seen(order) == "confirming"
    assert broker_length() == 1


def test_copy_in_redis_does_not_hide_the_return(order: VoucherOrder, payment: Payment) -> None:
    assert order.user_id
    proof: dict[str, Any] = {
        "sale_id": order.seckill_voucher_id,
        "order_id": order.pk,
        "user_id": order.user_id,
        "has_token": True,
    }
    find_receipt(**proof)  # makes the copy
    back(order)
    for _ in range(2):
        assert find_receipt(**proof).payment.state == "confirming"


@pytest.mark.parametrize(
    ("charge", "status", "shown"),
    [(ChargeState.PAID, "paid", ""), (ChargeState.CLOSED, "unpaid", "not_paid")],
)
def test_paid_or_closed_charge_settles_at_the_first_question(
    order: VoucherOrder, payment: Payment, fake: FakeProvider,
    charge: ChargeState, status: str, shown: str,
) -> None:  # fmt: skip
    now = back(order)
    fake.says[payment.reference] = charge
    assert confirm_payments(order_id=order.pk, now=now) is None
    assert status_of(order) == status
    assert seen(order) == shown


def test_open_charge_counts_as_unpaid_only_after_a_moment(
    order: VoucherOrder, payment: Payment, fake: FakeProvider
) -> None:
    """A provider may know of its own payment a moment late."""
    now = back(order)
    assert confirm_payments(order_id=order.pk, now=now) == PAUSE_S
    assert seen(order) == "confirming"
    assert confirm_payments(order_id=order.pk, now=now + SETTLE_FOR) is None
    assert seen(order) == "not_paid"
    assert confirm_payments(order_id=order.pk, now=now + SETTLE_FOR) is None
    assert len(fake.asked) == 2
    payment.refresh_from_db()
    assert payment.asked == 0
    assert payment.ask_at == now + SETTLE_FOR + dt.timedelta(seconds=FIRST_ASK_S)


def test_return_after_the_charge_was_closed_is_not_paid(
    order: VoucherOrder, payment: Payment
) -> None:
    notify_of_fake(payment, ChargeState.CLOSED)
    empty_broker()
    back(order)
    assert seen(order) == "not_paid"
    assert broker_length() == 0


def test_new_return_is_confirmed_again_after_a_while(order: VoucherOrder, payment: Payment) -> None:
    now = back(order)
    confirm_payments(order_id=order.pk, now=now + SETTLE_FOR)
    assert seen(order) == "not_paid"
    empty_broker()
    note_return(order=order, now=now + TRUSTED_FOR + SECOND)
    assert (seen(order), broker_length()) == ("confirming", 1)


def test_buyer_who_was_back_just_now_is_confirmed_later(
    order: VoucherOrder, payment: Payment, fake: FakeProvider
) -> None:
    """They may have paid since, or only reload the page: the question can wait ten seconds."""
    now = back(order)
    confirm_payments(order_id=order.pk, now=now + SETTLE_FOR)
    empty_broker()
    for later in range(3, 8):
        note_return(order=order, now=now + later * SECOND)
    assert (seen(order), broker_length()) == ("confirming", 0)
    fake.says[payment.reference] = ChargeState.PAID
    assert poll_payments(now=now + 12 * SECOND) == 0
    assert poll_payments(now=now + 13 * SECOND) == 1
    assert status_of(order) == "paid"


def test_silent_provider_is_named_and_asked_more_rarely(
    order: VoucherOrder, payment: Payment, fake: FakeProvider
) -> None:
    now = back(order)
    fake.away = True
    assert confirm_payments(order_id=order.pk, now=now) == SILENT_PAUSE_S
    assert seen(order) == "silent"
    fake.away, fake.says[payment.reference] = False, ChargeState.PAID
    forget_everything()  # its pause is over
    assert confirm_payments(order_id=order.pk, now=now + 5 * SECOND) is None
    assert status_of(order) == "paid"


def test_crowd_of_one_silent_provider_waits_for_it_once(fake: FakeProvider) -> None:
    sale = make_sale()
    orders = [make_unpaid_order(sale) for _ in range(3)]
    for order in orders:
        make_payment(order)
    fake.away = True
    for order in orders:
        assert confirm_payments(order_id=order.pk, now=back(order)) == SILENT_PAUSE_S
        assert seen(order) == "silent"
    assert len(fake.asked) == 1


def test_pay_comes_back_after_a_minute_without_answer(
    order: VoucherOrder, payment: Payment, fake: FakeProvider
) -> None:
    now = back(order)
    assert seen(order, after=CONFIRM_FOR - SECOND) == "confirming"
    assert seen(order, after=CONFIRM_FOR) == "unconfirmed"
    assert confirm_payments(order_id=order.pk, now=now + CONFIRM_FOR) is None
    assert fake.asked == []


def test_beat_asks_if_the_message_was_lost(
    order: VoucherOrder, payment: Payment, fake: FakeProvider
) -> None:
    now = back(order)
    fake.says[payment.reference] = ChargeState.PAID
    assert poll_payments(now=now + dt.timedelta(seconds=LOST_AFTER_S - 1)) == 0
    assert poll_payments(now=now + dt.timedelta(seconds=LOST_AFTER_S)) == 1
    assert status_of(order) == "paid"


def test_money_for_a_cancelled_order_is_found_and_goes_back(
    order: VoucherOrder, payment: Payment, fake: FakeProvider
) -> None:
    now = back(order)
    cancel_order(order_id=order.pk, by=SYSTEM, now=now)
    assert seen(order) == "confirming"
    fake.says[payment.reference] = ChargeState.PAID
    assert confirm_payments(order_id=order.pk, now=now) is None
    assert payment_status(payment) == PaymentStatus.REFUNDING
    assert seen(order) == ""


def test_cancelled_order_with_open_charge_says_so(order: VoucherOrder, payment: Payment) -> None:
    cancel_order(order_id=order.pk, by=SYSTEM, now=timezone.now())
    assert seen(order) == "open"
    notify_of_fake(payment, ChargeState.CLOSED)
    assert seen(order) == ""


def test_overdue_order_is_confirmed_too(order: VoucherOrder, payment: Payment) -> None:
    expire_pay_by(order)
    back(order)
    assert seen(order) == "confirming"


def test_task_publishes_the_next_question(
    order: VoucherOrder, payment: Payment, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, dict[str, float]]] = []
    monkeypatch.setattr("orders.tasks.publish", lambda name, **rest: sent.append((name, rest)))
    back(order)
    confirm_task(order_id=order.pk)
    assert sent == [("orders.tasks.confirm_payments", {"in_s": PAUSE_S, "order_id": order.pk})]
    fake.says[payment.reference] = ChargeState.PAID
    confirm_task(order_id=order.pk)
    assert len(sent) == 1
