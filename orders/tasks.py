"""Celery's side of the back half: each task translates and makes one domain call.

Treat a task's name and arguments as an API: messages of an older release may still be on their way.
"""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from orders import (
    expiring,
    fulfillment,
    jobs,
    paying,
    publishing,
    reconciling,
    refunding,
    rehearsing,
    sandbox,
    sweeping,
    telling,
    waiting,
)
from vouchers.tally import store_tallies as store_all_tallies
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


@shared_task(name="orders.tasks.expire")
def expire(**kwargs: Any) -> None:
    """End the orders whose time to pay is over."""
    expiring.expire_orders(now=timezone.now())


@shared_task(name="orders.tasks.poll_payments")
def poll_payments(**kwargs: Any) -> None:
    """Ask the providers for payments of which no word has come."""
    paying.poll_payments(now=timezone.now())


@shared_task(name="orders.tasks.finish_refunds")
def finish_refunds(**kwargs: Any) -> None:
    """Tell the providers again of what is to be refunded."""
    refunding.finish_refunds(now=timezone.now())


@shared_task(name="orders.tasks.restore_lines")
def restore_lines(**kwargs: Any) -> None:
    """Put back in line who waits and was forgotten."""
    waiting.restore_lines(now=timezone.now())


@shared_task(name="orders.tasks.tell_buyers")
def tell_buyers(**kwargs: Any) -> None:
    """Write to the buyers of what has become of their orders."""
    telling.tell_buyers(now=timezone.now())


@shared_task(name="orders.tasks.store_tallies")
def store_tallies(**kwargs: Any) -> None:
    """Move into the database how the order requests of the running sales were answered."""
    store_all_tallies(now=timezone.now())


@shared_task(name="orders.tasks.resume_jobs")
def resume_jobs(**kwargs: Any) -> None:
    """Send again the jobs that their worker has left."""
    jobs.resume_jobs(publish=publish_job, now=timezone.now())


@shared_task(name="orders.tasks.work_at_job")
def work_at_job(*, job_id: int, **kwargs: Any) -> None:
    """Go on with what staff asked for on many orders."""
    if jobs.work_at(job_id=job_id):
        publish_job(job_id=job_id)


@shared_task(name="orders.tasks.resume_rehearsals")
def resume_rehearsals(**kwargs: Any) -> None:
    """Send again the rehearsal that its process has left."""
    rehearsing.resume_rehearsals(publish=publish_rehearsal, now=timezone.now())


# A step fires for some seconds, or clears up for some; the slowest waits for each answer in vain.
@shared_task(name="orders.tasks.work_at_rehearsal", soft_time_limit=40, time_limit=50)
def work_at_rehearsal(*, rehearsal_id: int, turn: int, **kwargs: Any) -> None:
    """Do the next step of a rehearsal, and hand on to the one after it."""
    step = rehearsing.work_at(rehearsal_id=rehearsal_id, turn=turn, now=timezone.now())
    if step:
        publish_rehearsal(rehearsal_id=rehearsal_id, turn=step.turn, in_s=step.pause_s)


@shared_task(name="orders.tasks.notify_from_sandbox")
def notify_from_sandbox(*, reference: str, tries: int = 1, **kwargs: Any) -> None:
    """Send the sandbox's notification, and later again until the shop has taken it."""
    pause_s = sandbox.notify(reference=reference, tries=tries)
    if pause_s is not None:
        publish_sandbox_notification(reference=reference, tries=tries + 1, in_s=pause_s)


def publish_sandbox_notification(*, reference: str, tries: int = 1, in_s: float = 0) -> None:
    """Let the sandbox send its notification after so many seconds."""
    arguments = {"reference": reference, "tries": tries}
    notify_from_sandbox.apply_async(kwargs=arguments, countdown=in_s)


def publish_job(*, job_id: int) -> None:
    """Publish the task of a job; one that fails is resumed by beat."""
    publishing.publish(work_at_job, job_id=job_id)


def publish_rehearsal(*, rehearsal_id: int, turn: int, in_s: float = 0) -> None:
    """Publish the next step of a rehearsal; one that fails is resumed by beat."""
    task = work_at_rehearsal.signature(countdown=in_s)
    # As long as beat leaves it alone: a single worker may be busy with the rehearsal's own orders.
    expires_s = in_s + rehearsing.LEFT_ALONE.total_seconds()
    publishing.publish(task, expires_s=expires_s, rehearsal_id=rehearsal_id, turn=turn)


def publish_fulfillment(*, sale_id: int) -> None:
    """Publish the fulfil task of a sale; a failure is counted and logged, never raised."""
    publishing.publish(fulfill_sale, sale_id=sale_id)
