"""Jobs: what staff asks for on many orders is done by a worker, one order after the other.

A job needs no lock: each change is conditional, so of two workers at the same order one changes it.
A job that its worker left half-way is sent again; an order that the job itself has changed by then,
as the order's history tells, counts as changed, and one that somebody else has ended does not.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from orders.lifecycle.cancellation import Busy, cancel_order
from orders.lifecycle.transitions import Actor, WrongState
from orders.models import (
    SOURCES,
    ActorKind,
    JobStatus,
    OrderEvent,
    OrderJob,
    OrderStatus,
    VoucherOrder,
)
from orders.payments.refunds import refund_order
from orders.placing.publishing import publish
from seckill_site.failpoints import failpoint
from vouchers.inventory.keys import LedgerUnavailable

logger = logging.getLogger(__name__)

MOST_ORDERS = 20_000
"""How many orders one job takes: their ids go through one form field and one column."""

WORK_S = 5.0
"""How long a task works at a job before it hands on to a fresh one."""

NOTE_S, NOTED_AT_ONCE = 1.0, 20
"""How long, and how many orders, a worker goes on between two notes of how far a job is.

The time counts where a provider is slow: one that takes its time-out for each order would else keep
a job silent for longer than ``LEFT_ALONE``.
"""

LEFT_ALONE = dt.timedelta(seconds=20)
"""A running job that nothing was heard of for so long has lost its worker, or waits for Redis."""

AWAY = (LedgerUnavailable, OperationalError, InterfaceError)
"""Nobody knows whether the order was changed: a later try finds out."""

NO_SUCH_ORDER = gettext_noop("there is no such order")
FAILED = gettext_noop("it could not be changed; the worker's log says why")

_BECOMES = {
    OrderJob.Kind.CANCEL: OrderStatus.CANCELLED,
    OrderJob.Kind.REFUND: OrderStatus.REFUNDING,
}


class Publish(Protocol):
    """Sends the task of one job."""

    def __call__(self, *, job_id: int) -> None: ...


def publish_job(*, job_id: int) -> None:
    """Publish the task of a job; one that fails is resumed by beat."""
    publish("orders.tasks.work_at_job", job_id=job_id)


def begins_at(kind: str) -> OrderStatus:
    """Return the state that an order has to be in for this to be done to it."""
    return SOURCES[_BECOMES[OrderJob.Kind(kind)]]


def end_order(*, kind: str, order_id: int, by: Actor, why: str) -> None:
    """Cancel or refund one order; raises what ``cancel_order`` and ``refund_order`` raise."""
    act = cancel_order if kind == OrderJob.Kind.CANCEL else refund_order
    act(order_id=order_id, by=by, now=timezone.now(), why=why)


def begin_job(
    *, kind: OrderJob.Kind, order_ids: Iterable[int], by: Actor, why: str = ""
) -> OrderJob:
    """Note what is to be done; the caller publishes it once this is committed."""
    ids = list(dict.fromkeys(order_ids))
    return OrderJob.objects.create(
        kind=kind,
        why=why[:200],
        actor_id=by.user_id,
        order_ids=ids,
        total=len(ids),
        status=JobStatus.RUNNING if ids else JobStatus.DONE,
    )


def work_at(*, job_id: int) -> bool:
    """Go on with a job for some seconds; say whether there is more to do."""
    until = time.monotonic() + WORK_S
    while time.monotonic() < until:
        if not _next_orders(job_id):
            return False
    return True


def _next_orders(job_id: int) -> bool:
    """Do the next orders of a job; False where none is left, or nothing works just now."""
    job = OrderJob.objects.filter(pk=job_id, status=JobStatus.RUNNING).first()
    if job is None:
        return False
    outcomes: dict[int, str] = {}
    busy: set[int] = set()
    away = False
    until = time.monotonic() + NOTE_S
    for order_id in job.order_ids[:NOTED_AT_ONCE]:
        try:
            outcomes[order_id] = _change(job, order_id)
        except Busy:
            busy.add(order_id)
        except AWAY as error:
            logger.warning("job %s waits at order %s: %r", job, order_id, error)
            away = True
        if away or time.monotonic() > until:
            break
    failpoint("job.changed")
    is_left = _note(job_id, outcomes, busy)
    return is_left and bool(outcomes) and not away


def _change(job: OrderJob, order_id: int) -> str:
    """Do what the job says to one order; return why not, or nothing."""
    try:
        end_order(kind=job.kind, order_id=order_id, by=Actor.staff(job.actor_id), why=job.why)
    except (Busy, *AWAY):
        raise
    except VoucherOrder.DoesNotExist:
        return NO_SUCH_ORDER
    except WrongState as error:
        return "" if _has_changed(job, order_id) else error.status
    except Exception:
        # An order that nothing can be done with must not keep the others waiting for ever.
        logger.exception("job %s failed at order %s", job, order_id)
        return "" if _has_changed(job, order_id) else FAILED
    return ""


def _has_changed(job: OrderJob, order_id: int) -> bool:
    """Say whether this job has changed the order before: its worker died, or there are two."""
    return OrderEvent.objects.filter(
        order=order_id,
        after=_BECOMES[OrderJob.Kind(job.kind)],
        at__gte=job.created_at,
        actor_kind=ActorKind.STAFF,
        actor=job.actor_id,
        reason=job.why,
    ).exists()


def _note(job_id: int, outcomes: Mapping[int, str], busy: Collection[int]) -> bool:
    """Note what became of these orders, unless another worker has; say whether any is left.

    One that was busy goes to the end of the line.
    """
    with transaction.atomic(durable=True):
        job = OrderJob.objects.select_for_update().get(pk=job_id)
        mine = [order_id for order_id in job.order_ids if order_id in outcomes]
        job.refusals |= {
            str(order_id): outcomes[order_id] for order_id in mine if outcomes[order_id]
        }
        rest = [order_id for order_id in job.order_ids if order_id not in outcomes]
        job.order_ids = sorted(rest, key=lambda order_id: order_id in busy)
        job.done = job.total - len(rest)
        if not rest:
            job.status = JobStatus.DONE
        job.save(update_fields=["order_ids", "done", "refusals", "status", "changed_at"])
    return bool(rest)


def resume_jobs(*, publish: Publish, now: dt.datetime) -> list[int]:
    """Publish again every running job that its worker has left; return them."""
    left = OrderJob.objects.filter(status=JobStatus.RUNNING, changed_at__lt=now - LEFT_ALONE)
    jobs = list(left.order_by("pk").values_list("pk", flat=True))
    left.filter(pk__in=jobs).update(changed_at=now)
    for job_id in jobs:
        publish(job_id=job_id)
    return jobs


def why_not(refusal: str) -> str:
    """Return in words why an order was not changed."""
    if refusal in OrderStatus.values:
        return gettext("it is %(status)s") % {"status": OrderStatus(refusal).label}
    return gettext(refusal)
