"""Deadlines that come near, each of which wakes the shop before it is due."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.utils import timezone

from api.models import WebhookDelivery
from backoffice.deadlines import AHEAD, something_is_due
from backoffice.tasks import look_ahead
from orders.models import Notice, OrderEvent, Payment, PaymentStatus, VoucherOrder
from seckill_site.broker import pace
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.api import make_delivery, make_endpoint
from tests.support.draws import make_draw
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, order_with_payment
from tests.support.tiers import slow_after
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

Deadline = Callable[[dt.datetime], object]


def order(at: dt.datetime) -> None:
    make_unpaid_order(make_sale())
    VoucherOrder.objects.update(pay_by=at)


def payment(at: dt.datetime) -> None:
    order_with_payment()
    Payment.objects.update(ask_at=at)


def refund(at: dt.datetime) -> None:
    order_with_payment()
    Payment.objects.update(ask_at=at, status=PaymentStatus.REFUNDING)


def mail(at: dt.datetime) -> None:
    make_unpaid_order(make_sale())
    OrderEvent.objects.update(notified_at=None, notify_at=at)


def draw(at: dt.datetime) -> None:
    sale = make_draw()
    SeckillVoucher.objects.filter(pk=sale.pk).update(ends_at=at)


def reminder(at: dt.datetime) -> None:
    sale = make_sale(begins_in_s=600, ends_in_s=7_200)
    make_notice(sale, make_reader())
    begins_at = at + dt.timedelta(seconds=600)
    SeckillVoucher.objects.filter(pk=sale.pk).update(begins_at=begins_at)


def second_try(at: dt.datetime) -> None:
    make_notice(make_sale(), make_reader(), Notice.Kind.BACK, notify_at=at)


def webhook(at: dt.datetime) -> None:
    delivery = make_delivery(make_endpoint("https://a.example"), make_unpaid_order(make_sale()))
    WebhookDelivery.objects.filter(pk=delivery.pk).update(next_at=at)


DEADLINES: dict[str, Deadline] = {
    "an order expires": order,
    "a provider is asked about a payment": payment,
    "a refund is tried again": refund,
    "a mail is sent again": mail,
    "a draw ends": draw,
    "a reminder is sent": reminder,
    "a notice is sent again": second_try,
    "a webhook is sent again": webhook,
}


def settle_the_rest(*, leave: str) -> None:
    """Let nothing be due that setting up a deadline leaves."""
    if leave != "a mail is sent again":
        OrderEvent.objects.update(notified_at=timezone.now())
    OrderEvent.objects.update(webhooks_due=None)


@pytest.mark.parametrize("name", slow_after(1, DEADLINES))
def test_deadline_is_seen_before_it_is_due(name: str) -> None:
    now = timezone.now()
    DEADLINES[name](now + AHEAD + dt.timedelta(seconds=30))
    settle_the_rest(leave=name)
    assert not something_is_due(now=now)
    assert something_is_due(now=now + dt.timedelta(seconds=31))


def test_near_deadline_wakes_the_shop() -> None:
    ledger_connection().delete(pace.AWAKE)
    look_ahead()
    pace._signs.flush()
    assert not ledger_connection().exists(pace.AWAKE)
    order(timezone.now())
    ledger_connection().delete(pace.AWAKE)
    pace._noted.trust(for_s=0)
    look_ahead()
    pace._signs.flush()
    assert ledger_connection().exists(pace.AWAKE)
