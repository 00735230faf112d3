"""The Celery tasks of the API, on a queue of their own: receivers may be slow."""

from contextlib import suppress
from typing import Any

from celery import shared_task

from api.webhooks import delivery, planning
from seckill_site.clocks.steps import ClocksUnsettled, settled_clocks


@shared_task(name="api.tasks.send_webhooks")
def send_webhooks(**kwargs: Any) -> None:
    delivery.send_webhooks()


@shared_task(name="api.tasks.delete_old_deliveries")
def delete_old_deliveries(**kwargs: Any) -> None:
    with suppress(ClocksUnsettled):
        planning.delete_old_deliveries(now=settled_clocks().earlier)
