"""Planning: the history of orders is the outbox, and each event becomes one delivery per endpoint.

The mark on an event goes in the transaction that writes its deliveries, so none is lost. A second
planner writes nothing twice: the database allows one delivery of an event per endpoint.
"""

import datetime as dt

from django.db import transaction

from api.models import Topic, WebhookDelivery, WebhookEndpoint
from orders.models import OrderEvent
from vouchers.models import SaleStage

EVENTS_AT_ONCE = 1_000
KEPT_FOR = dt.timedelta(days=30)
DELETED_AT_ONCE = 5_000


def plan_deliveries(*, now: dt.datetime) -> None:
    """Plan the deliveries of the next ``EVENTS_AT_ONCE`` events that are due."""
    due = OrderEvent.objects.filter(webhooks_due=True).order_by("pk")
    fields = due.values_list("pk", "order", "before", "after", "order__seckill_voucher__stage")
    events = list(fields[:EVENTS_AT_ONCE])
    if not events:
        return
    endpoints = list(WebhookEndpoint.objects.filter(active=True))
    with transaction.atomic(durable=True):
        WebhookDelivery.objects.bulk_create(
            [
                WebhookDelivery(
                    endpoint=endpoint,
                    event_id=event_id,
                    order_id=order_id,
                    topic=Topic.of(before, after),
                    created_at=now,
                    next_at=now,
                )
                for event_id, order_id, before, after, stage in events
                if stage != SaleStage.REHEARSAL
                for endpoint in endpoints
                if Topic.of(before, after) in endpoint.topics
            ],
            ignore_conflicts=True,
        )
        planned = [event_id for event_id, *_ in events]
        OrderEvent.objects.filter(pk__in=planned).update(webhooks_due=None)


def delete_old_deliveries(*, now: dt.datetime) -> int:
    """Delete the log of what was delivered or given up long ago, a part of it each hour.

    Return how many rows.
    """
    old = WebhookDelivery.objects.filter(tried_at__lt=now - KEPT_FOR)
    old = old.exclude(state=WebhookDelivery.State.WAITING)
    ids = list(old.order_by("tried_at").values_list("pk", flat=True)[:DELETED_AT_ONCE])
    WebhookDelivery.objects.filter(pk__in=ids).delete()
    return len(ids)
