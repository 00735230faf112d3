"""Delivering: each endpoint is served on its own, so a slow one delays only itself.

A pass sends what is due and ends when nothing is, or after ``PASS_S``. An attempt is recorded when
its answer is there: if the worker dies in between, the next pass sends the same message again, with
the same id. Events of one order reach an endpoint in their order: a later one waits until the
earlier one is delivered or given up.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from asgiref.sync import async_to_sync, sync_to_async
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest

from api.models import WebhookDelivery, WebhookEndpoint
from api.webhooks.client import Attempt, post
from api.webhooks.endpoints import record_health
from api.webhooks.messages import message_body, message_headers
from api.webhooks.planning import plan_deliveries
from locks import LockBusy
from orders.models import OrderEvent
from seckill_site.clocks.database import database_now
from seckill_site.failpoints import failpoint
from seckill_site.metrics import counter
from vouchers.inventory.passes import alone

logger = logging.getLogger(__name__)

PASS_S = 15.0
"""The longest pass; the attempts under way may take ``TIMEOUT_S`` more."""

LOOK_S = 0.5
"""How often a pass looks for new events while it is sending."""

AT_ONCE = 8
"""The most messages under way to one endpoint."""

ENDPOINTS_AT_ONCE = 50
"""The most endpoints that are served at a time."""

RETRY_AFTER_S = (5, 60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""The pauses between attempts, over three days together; then a delivery has failed."""

State = WebhookDelivery.State


def send_webhooks() -> None:
    """Plan and send what is due. Only one process at a time sends.

    :raises LedgerUnavailable: Redis (for the lock) did not respond; the next call continues.
    """
    if are_webhooks_due(now=database_now()):
        with suppress(LockBusy), alone("webhooks") as lock:
            # asgiref runs what touches the database in this thread, on its connection.
            async_to_sync(_Pass(until=monotonic() + PASS_S, stop=lambda: lock.lost).run)()


def are_webhooks_due(*, now: dt.datetime) -> bool:
    """Return whether there is something to plan or to send."""
    return OrderEvent.objects.filter(webhooks_due=True).exists() or _due(now).exists()


@dataclass
class _Pass:
    """One pass over all endpoints."""

    until: float
    stop: Callable[[], bool]
    serving: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.stop() or monotonic() >= self.until

    async def run(self) -> None:
        """Serve the endpoints for which something is due, until nothing is."""
        try:
            while True:
                if not self.is_over:
                    await self._start()
                if not self.serving:
                    return
                await asyncio.wait(
                    self.serving.values(), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
                for endpoint_id in [key for key, task in self.serving.items() if task.done()]:
                    self.serving.pop(endpoint_id).result()
        finally:
            for task in self.serving.values():
                task.cancel()
            await asyncio.gather(*self.serving.values(), return_exceptions=True)

    async def _start(self) -> None:
        """Start serving the endpoints with something due that are not being served."""
        for endpoint_id in await sync_to_async(self._plan)():
            if len(self.serving) < ENDPOINTS_AT_ONCE and endpoint_id not in self.serving:
                self.serving[endpoint_id] = asyncio.create_task(self._serve(endpoint_id))

    def _plan(self) -> list[int]:
        """Plan some deliveries, and return the endpoints with something due."""
        now = database_now()
        plan_deliveries(now=now)
        return list(_due(now).order_by().values_list("endpoint", flat=True).distinct())

    async def _serve(self, endpoint_id: int) -> None:
        """Send what is due for one endpoint, a few messages at a time."""
        while not self.is_over:
            due, now = await sync_to_async(_due_for)(endpoint_id)
            if not due:
                return
            attempts = await asyncio.gather(*(_send(it, now) for it in due))
            await sync_to_async(record_health)(endpoint_id, attempts)


def _due(now: dt.datetime) -> QuerySet[WebhookDelivery]:
    """Return what may be sent now: of each order only the earliest event that waits."""
    waiting = WebhookDelivery.objects.filter(state=State.WAITING)
    earlier = waiting.filter(
        endpoint=OuterRef("endpoint"), order=OuterRef("order"), event__lt=OuterRef("event")
    )
    may = Q(endpoint__paused_until=None) | Q(endpoint__paused_until__lte=now)
    return waiting.filter(may, ~Exists(earlier), endpoint__active=True, next_at__lte=now)


def webhooks_waiting_since(*, now: dt.datetime) -> dt.datetime | None:
    """Return since when webhooks wait although nothing is sent; None if none waits."""
    if not WebhookEndpoint.objects.filter(active=True).exists():
        return None
    may_go_at = Greatest("next_at", Coalesce("endpoint__paused_until", "next_at"))
    moments: list[dt.datetime | None] = [
        OrderEvent.objects.filter(webhooks_due=True).values_list("at", flat=True).first(),
        _due(now).order_by().aggregate(since=Min(may_go_at))["since"],
    ]
    if not (since := [it for it in moments if it]):
        return None
    # A backlog that is being sent waits for its receiver, and not for a worker.
    by_age = WebhookDelivery.objects.filter(tried_at__isnull=False).order_by("-tried_at")
    tried = [by_age.filter(state=it).values_list("tried_at", flat=True).first() for it in State]
    return max([min(since), *(it for it in tried if it)])


def _due_for(endpoint_id: int) -> tuple[list[WebhookDelivery], dt.datetime]:
    """Return the next deliveries to an endpoint with all that their messages need, and the time."""
    now = database_now()
    due = _due(now).filter(endpoint=endpoint_id).select_related("endpoint", "event__order")
    return list(due.order_by("next_at", "pk")[:AT_ONCE]), now


async def _send(delivery: WebhookDelivery, now: dt.datetime) -> Attempt:
    body, endpoint = message_body(delivery), delivery.endpoint
    headers = message_headers(endpoint, message_id=delivery.message_id, body=body, now=now)
    attempt = await post(endpoint.url, headers=headers, body=body)
    failpoint("webhook.sent")
    await sync_to_async(_record)(delivery, attempt)
    return attempt


def _record(delivery: WebhookDelivery, attempt: Attempt) -> None:
    counter("webhooks", "ok" if attempt.succeeded else "failed").inc()
    now = database_now()
    state, next_at = State.DELIVERED if attempt.succeeded else State.FAILED, None
    if not attempt.succeeded and delivery.tries < len(RETRY_AFTER_S):
        state = State.WAITING
        next_at = now + dt.timedelta(seconds=RETRY_AFTER_S[delivery.tries])
    WebhookDelivery.objects.filter(pk=delivery.pk).update(
        state=state,
        next_at=next_at,
        tries=F("tries") + 1,
        tried_at=now,
        **attempt._asdict(),
    )
