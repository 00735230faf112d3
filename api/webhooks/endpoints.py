"""Endpoints: their secrets, and their health after each group of attempts."""

import datetime as dt
import logging
from collections.abc import Sequence

from django.db.models import F, QuerySet, Value
from django.db.models.functions import Coalesce

from api.models import WebhookDelivery, WebhookEndpoint
from api.webhooks.client import Attempt
from api.webhooks.messages import new_secret
from seckill_site.clocks.database import database_now

logger = logging.getLogger(__name__)

OLD_SECRET_FOR = dt.timedelta(hours=24)
"""For this long both secrets sign, so a receiver has time to take the new one."""

DISABLE_AFTER = dt.timedelta(days=3)

_PAUSES_S = (5, 30, 120, 600)
"""Pauses of an endpoint that does not answer, whatever waits for it."""

GONE = 410
"""The answer of a receiver that wants no more messages."""


def create_secret(endpoint: WebhookEndpoint) -> str:
    """Give a new endpoint its secret, and return it; the caller saves the endpoint."""
    endpoint.secret = new_secret()
    return endpoint.secret


def rotate_secret(endpoint: WebhookEndpoint, *, now: dt.datetime) -> str:
    """Give an endpoint a new secret and return it; the old one signs as well for a day."""
    endpoint.old_secret, endpoint.old_secret_until = endpoint.secret, now + OLD_SECRET_FOR
    endpoint.secret = new_secret()
    endpoint.save(update_fields=["secret", "old_secret", "old_secret_until"])
    return endpoint.secret


def enable(endpoint: WebhookEndpoint) -> None:
    """Forget the failures of an endpoint; what waits for it is sent. The caller saves it."""
    endpoint.failing_since = endpoint.disabled_at = endpoint.paused_until = None
    endpoint.failures = 0


def needing_attention() -> QuerySet[WebhookEndpoint]:
    """Return the endpoints that were disabled because they failed for days."""
    return WebhookEndpoint.objects.exclude(disabled_at=None)


def record_health(endpoint_id: int, attempts: Sequence[Attempt]) -> None:
    """Record whether an endpoint works; pause or disable one that does not."""
    rows, now = WebhookEndpoint.objects.filter(pk=endpoint_id), database_now()
    if any(it.succeeded for it in attempts):
        rows.exclude(failing_since=None).update(failing_since=None, failures=0, paused_until=None)
        return
    rows.update(failing_since=Coalesce("failing_since", Value(now)))
    if not any(it.status for it in attempts):
        endpoint = rows.get()
        pause_s = _PAUSES_S[min(endpoint.failures, len(_PAUSES_S) - 1)]
        paused_until = now + dt.timedelta(seconds=pause_s)
        rows.update(failures=F("failures") + 1, paused_until=paused_until)
    failed_too_long = rows.filter(active=True, failing_since__lte=now - DISABLE_AFTER)
    wants_no_more = any(it.status == GONE for it in attempts)
    if (rows if wants_no_more else failed_too_long).update(active=False, disabled_at=now):
        logger.warning("webhook %s is disabled", endpoint_id)


def resend(deliveries: QuerySet[WebhookDelivery], *, now: dt.datetime) -> int:
    """Send these again, from the first attempt on; return how many."""
    return deliveries.update(state=WebhookDelivery.State.WAITING, next_at=now, tries=0)
