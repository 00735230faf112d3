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


def plan_deliveries(*, now: dt.datetime) -> bool:
    """Plan the deliveries of the events that are due; return whether more may be left."""
    events = list(
        OrderEvent.objects.filter(webhooks_due=True)
        .select_related("order__seckill_voucher")
        .order_by("pk")[:EVENTS_AT_ONCE]
    )
    if not events:
        return False
    endpoints = list(WebhookEndpoint.objects.filter(active=True))
    with transaction.atomic(durable=True):
        WebhookDelivery.objects.bulk_create(
            [
                WebhookDelivery(
                    endpoint=endpoint,
                    event=event,
                    order_id=event.order_id,
                    topic=Topic.of(event.after),
                    created_at=now,
                    next_at=now,
                )
                for event in events
                if event.order.seckill_voucher.stage != SaleStage.REHEARSAL
                for endpoint in endpoints
                if Topic.of(event.after) in endpoint.topics
            ],
            ignore_conflicts=True,
        )
        OrderEvent.objects.filter(pk__in=[it.pk for it in events]).update(webhooks_due=None)
    return len(events) == EVENTS_AT_ONCE


def delete_old_deliveries(*, now: dt.datetime) -> int:
    """Delete the log of what was delivered or given up long ago, a part of it each hour.

    Return how many rows.
    """
    old = WebhookDelivery.objects.filter(tried_at__lt=now - KEPT_FOR)
    old = old.exclude(state=WebhookDelivery.State.WAITING)
    ids = list(old.order_by("tried_at").values_list("pk", flat=True)[:DELETED_AT_ONCE])
    WebhookDelivery.objects.filter(pk__in=ids).delete()
    return len(ids)
