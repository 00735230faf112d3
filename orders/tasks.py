"""Celery's side of the back half: each task translates and makes one domain call.

Treat a task's name and arguments as an API: messages of an older release may still be on their way.
"""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from orders import fulfillment, publishing, reconciling, sweeping
from vouchers.watching import rebuild_after_restart


# A pass takes about SECKILL_WORK_MS; a database that is silent at each try, over 20 s.
@shared_task(name="orders.tasks.fulfill_sale", soft_time_limit=30, time_limit=40)
def fulfill_sale(*, sale_id: int, **kwargs: Any) -> None:
    """Make the pending entries of a sale into orders, and hand on where there is more to do."""
    if fulfillment.fulfill_sale(sale_id=sale_id):
        publish_fulfillment(sale_id=sale_id)


@shared_task(name="orders.tasks.sweep")
def sweep(**kwargs: Any) -> None:
    """Send the fulfil task again for every sale with a pending entry that has waited too long."""
    sweeping.sweep(publish=publish_fulfillment, now=timezone.now())


@shared_task(name="orders.tasks.sweep_long_over")
def sweep_long_over(**kwargs: Any) -> None:
    """Do the same for sales that should have nothing pending any more."""
    sweeping.sweep(publish=publish_fulfillment, now=timezone.now(), long_over=True)


@shared_task(name="orders.tasks.watch_ledger")
def watch_ledger(**kwargs: Any) -> None:
    """Build the ledgers anew that another run of Redis, or another server, has left behind."""
    rebuild_after_restart(now=timezone.now())


@shared_task(name="orders.tasks.reconcile")
def reconcile(**kwargs: Any) -> None:
    """Repair the sales that may still change and whose ledger and database do not fit."""
    reconciling.reconcile_running(now=timezone.now())


def publish_fulfillment(*, sale_id: int) -> None:
    """Publish the fulfil task of a sale; a failure is counted and logged, never raised."""
    publishing.publish(fulfill_sale, sale_id=sale_id)
