"""Messages as receivers see them, checked by the specification's own library."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from django.utils import timezone
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from api.models import Topic, WebhookDelivery, WebhookEndpoint
from api.webhooks.endpoints import OLD_SECRET_FOR, rotate_secret
from api.webhooks.messages import message_body, message_headers
from api.webhooks.planning import plan_deliveries
from orders.models import VoucherOrder
from tests.support.api import make_endpoint
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, pay

pytestmark = pytest.mark.django_db


@pytest.fixture
def paid() -> VoucherOrder:
    order = make_unpaid_order(make_sale())
    pay(order)
    order.refresh_from_db()
    return order


def planned(endpoint: WebhookEndpoint) -> WebhookDelivery:
    plan_deliveries(now=timezone.now())
    return WebhookDelivery.objects.get(endpoint=endpoint)


def signed(endpoint: WebhookEndpoint, body: bytes) -> dict[str, str]:
    return message_headers(endpoint, message_id="event_7", body=body, now=timezone.now())


@pytest.mark.django_db(transaction=True)
def test_message_has_ids_and_nothing_personal(paid: VoucherOrder) -> None:
    delivery = planned(make_endpoint("https://example.com/"))
    assert paid.user is not None
    text = message_body(delivery).decode()

    found = json.loads(text)
    assert found["type"] == Topic.PAID.value
    assert found["data"] == {
        "event_id": str(delivery.event_id),
        "order_id": str(paid.pk),
        "purchase": str(paid.pk),
        "voucher_id": str(paid.seckill_voucher_id),
        "status": "paid",
        "price_cents": paid.price_cents,
        "at_ms": found["data"]["at_ms"],
    }
    assert (paid.code or "-") not in text
    assert paid.user.username not in text
    assert text.encode() == message_body(WebhookDelivery.objects.get(pk=delivery.pk))


@pytest.mark.parametrize("forged", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_forged_message_is_not_verified(forged: str) -> None:
    endpoint, other = make_endpoint("https://example.com/"), make_endpoint("https://b.example/")
    body = b'{"type":"order.paid"}'
    headers = signed(endpoint, body)
    if forged == "webhook-id":
        headers[forged] = "event_8"
    if forged == "webhook-timestamp":
        headers[forged] = str(int(headers[forged]) + 1)
    secret = other.secret if forged == "secret" else endpoint.secret
    sent = b'{"type":"order.used"}' if forged == "body" else body

    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(sent, headers)


def test_old_secret_signs_for_a_day() -> None:
    endpoint = make_endpoint("https://example.com/")
    old, now, body = endpoint.secret, timezone.now(), b"{}"
    new = rotate_secret(endpoint, now=now)

    assert new != old
    for secret in (old, new):
        Webhook(secret).verify(body, signed(endpoint, body))
    later = now + OLD_SECRET_FOR + dt.timedelta(seconds=1)
    headers = message_headers(endpoint, message_id="event_7", body=body, now=later)
    assert len(headers["webhook-signature"].split()) == 1
