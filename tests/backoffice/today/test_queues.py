"""Queues without a worker: Today, System and the checks say so, and only where work waits."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from api.models import WebhookDelivery
from api.webhooks.planning import plan_deliveries
from backoffice.today.queues import LATE_AFTER, check_queues, late_queues
from orders.models import OrderEvent, Payment
from orders.payments.service import poll_payments
from tests.support.api import make_delivery, make_endpoint
from tests.support.orders import make_sale
from tests.support.payments import make_payment, make_unpaid_order, pay, use_fake
from tests.support.staff import staff_with

pytestmark = pytest.mark.django_db

LATER = LATE_AFTER + dt.timedelta(minutes=1)
State = WebhookDelivery.State


def late(after: dt.timedelta = LATER) -> set[str]:
    return set(late_queues(now=timezone.now() + after))


def overdue_payment() -> Payment:
    payment = make_payment(make_unpaid_order(make_sale()))
    Payment.objects.filter(pk=payment.pk).update(ask_at=timezone.now() - LATER)
    return payment


def test_unused_queues_are_not_late() -> None:
    pay(make_unpaid_order(make_sale()))
    assert late(dt.timedelta(days=1)) == set()


def test_payments_are_late_until_a_worker_asks() -> None:
    overdue_payment()
    assert late(dt.timedelta(0)) == {"payments"}

    poll_payments(now=timezone.now())

    assert late(dt.timedelta(0)) == set()


def test_payments_of_a_silent_provider_wait_for_it(settings: Any) -> None:
    payment, other = overdue_payment(), overdue_payment()
    Payment.objects.filter(pk=other.pk).update(silent_since=timezone.now())
    assert late(dt.timedelta(0)) == set()

    use_fake(settings)
    Payment.objects.filter(pk=payment.pk).update(provider="fake")
    assert late(dt.timedelta(0)) == {"payments"}


def test_webhooks_are_late_until_they_are_sent() -> None:
    delivery = make_delivery(make_endpoint("https://x.example"), make_unpaid_order(make_sale()))
    OrderEvent.objects.update(webhooks_due=None)
    assert (late(dt.timedelta(minutes=1)), late()) == (set(), {"webhooks"})

    WebhookDelivery.objects.filter(pk=delivery.pk).update(state=State.DELIVERED)
    assert late() == set()


def test_events_that_nobody_plans_are_late() -> None:
    make_endpoint("https://x.example")
    pay(make_unpaid_order(make_sale()))
    assert late() == {"webhooks"}

    plan_deliveries(now=timezone.now() + LATER)
    assert late() == set()


@pytest.mark.parametrize("endpoint", [{"active": False}, {"paused_until": dt.timedelta(hours=1)}])
def test_webhooks_to_a_resting_endpoint_are_not_late(endpoint: dict[str, Any]) -> None:
    fields = {
        key: timezone.now() + it if isinstance(it, dt.timedelta) else it
        for key, it in endpoint.items()
    }
    make_delivery(make_endpoint("https://x.example", **fields), make_unpaid_order(make_sale()))
    OrderEvent.objects.update(webhooks_due=None)

    assert late() == set()


def test_backlog_that_is_being_sent_is_not_late() -> None:
    endpoint, order = make_endpoint("https://x.example"), make_unpaid_order(make_sale())
    make_delivery(endpoint, order)
    other = make_delivery(endpoint, make_unpaid_order(make_sale()))
    OrderEvent.objects.update(webhooks_due=None)
    tried_at = timezone.now() + LATER - dt.timedelta(seconds=5)
    WebhookDelivery.objects.filter(pk=other.pk).update(state=State.DELIVERED, tried_at=tried_at)

    assert late() == set()
    assert late(2 * LATER) == {"webhooks"}


@pytest.mark.slow
def test_today_system_and_checks_tell_of_a_late_queue() -> None:
    owner = staff_with(name="owner", is_owner=True)
    sentence = "Checks of payments are"
    for page in ("/admin/", "/admin/system/"):
        assert sentence not in owner.get(page).text
    assert list(check_queues()) == []

    overdue_payment()
    cache.clear()

    for page in ("/admin/", "/admin/system/"):
        assert sentence in owner.get(page).text
    assert [it.id for it in check_queues()] == ["seckill.W018"]
