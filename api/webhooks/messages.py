"""Messages of webhooks: what is sent, and its signature by the Standard Webhooks specification.

A message is made from the history of an order alone, so each attempt sends the same bytes. It has
no personal data: a program that needs more asks the API for the order.
"""

import base64
import datetime as dt
import hmac
import json
import secrets
from hashlib import sha256

from api.models import Topic, WebhookDelivery, WebhookEndpoint
from seckill_site.clocks.machine import epoch_ms
from vouchers.inventory.purchases import purchase_of

SECRET_START = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Return a new secret, as receivers' libraries expect it."""
    return SECRET_START + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def message_body(delivery: WebhookDelivery) -> bytes:
    event, order = delivery.event, delivery.event.order
    content = {
        "type": Topic.of(event.before, event.after),
        "timestamp": event.at.astimezone(dt.UTC).isoformat().replace("+00:00", "Z"),
        "data": {
            "event_id": str(event.pk),
            "order_id": str(order.pk),
            "purchase": str(purchase_of(order.pk)),
            "voucher_id": str(order.seckill_voucher_id),
            "status": event.after,
            "price_cents": order.price_cents,
            "at_ms": epoch_ms(event.at),
        },
    }
    return json.dumps(content, separators=(",", ":")).encode()


def message_headers(
    endpoint: WebhookEndpoint, *, message_id: str, body: bytes, now: dt.datetime
) -> dict[str, str]:
    """Return the headers of a message, signed with the secret, and for a while with the old one."""
    sent_at = int(now.timestamp())
    keys = [endpoint.secret]
    if endpoint.old_secret and endpoint.old_secret_until and endpoint.old_secret_until > now:
        keys.append(endpoint.old_secret)
    return {
        "Content-Type": "application/json",
        "User-Agent": "seckill-webhooks/1",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": " ".join(_signature(key, message_id, sent_at, body) for key in keys),
    }


def _signature(secret: str, message_id: str, sent_at: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_START))
    signed = f"{message_id}.{sent_at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, sha256)).decode()
