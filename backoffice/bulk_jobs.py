"""Bulk jobs: staff cancel or refund many orders, and a worker changes them one by one.

A job needs no lock: each change is conditional, so only one of two workers changes an order.
When a job is resumed, an order counts as changed if its history shows that this job changed it. An
order that somebody else has ended does not.
"""

import datetime as dt
import logging
import time
from collections.abc import Iterable

from django.utils.translation import gettext, gettext_noop

from backoffice.job_engine import RETRY_S, UNAVAILABLE, Turn, do_turn, record_step
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
from seckill_site.clocks.database import database_now
from seckill_site.failpoints import failpoint

logger = logging.getLogger(__name__)

MAX_ORDERS = 20_000
"""The most orders of one job. Their ids go through one form field and one column."""

STEP_S, STEP_ORDERS = 2.0, 100
"""The limits of one step. The time keeps it within its lease if a provider is slow."""

NO_SUCH_ORDER = gettext_noop("the order does not exist")
FAILED = gettext_noop("it could not be changed; the worker's log has the reason")

_BECOMES = {
    OrderJob.Kind.CANCEL: OrderStatus.CANCELLED,
    OrderJob.Kind.REFUND: OrderStatus.REFUNDING,
}


def required_status(kind: str) -> OrderStatus:
    """Return the status that an order must have to be changed by a job of this kind."""
    return SOURCES[_BECOMES[OrderJob.Kind(kind)]]


def end_order(*, kind: str, order_id: int, by: Actor, why: str) -> None:
    """Cancel or refund one order. Raise the errors of ``cancel_order`` and ``refund_order``."""
    act = cancel_order if kind == OrderJob.Kind.CANCEL else refund_order
    act(order_id=order_id, by=by, now=database_now(), why=why)


def start_job(
    *, kind: OrderJob.Kind, order_ids: Iterable[int], by: Actor, why: str = ""
) -> OrderJob:
    """Create a job; the caller publishes it after the commit."""
    ids = list(dict.fromkeys(order_ids))
    return OrderJob.objects.create(
        kind=kind,
        why=why[:200],
        actor_id=by.user_id,
        order_ids=ids,
        total=len(ids),
        status=JobStatus.RUNNING if ids else JobStatus.DONE,
    )


def publish_job(*, job_id: int, in_s: float = 0.0) -> None:
    """Publish the next step of a job; if that fails, beat resumes the job."""
    publish("orders.tasks.work_at_job", in_s=in_s, job_id=job_id)


def take_turn(*, job_id: int, now: dt.datetime) -> Turn | None:
    return do_turn(OrderJob.objects.filter(OrderJob.RUNNING, pk=job_id), _step, now=now)


def _step(job: OrderJob, now: dt.datetime) -> float | None:
    """Change the next orders. Busy orders go to the end of the list."""
    outcomes: dict[int, str] = {}
    busy: set[int] = set()
    pause_s = 0.0
    until = time.monotonic() + STEP_S
    for order_id in job.order_ids[:STEP_ORDERS]:
        try:
            outcomes[order_id] = _change(job, order_id)
        except Busy:
            busy.add(order_id)
        except UNAVAILABLE as error:
            logger.warning("%s waits at order %s: %r", job, order_id, error)
            pause_s = RETRY_S
            break
        if time.monotonic() > until:
            break
    failpoint("job.changed")
    rest = [order_id for order_id in job.order_ids if order_id not in outcomes]
    refusals = {str(order_id): refusal for order_id, refusal in outcomes.items() if refusal}
    record_step(
        job,
        now=now,
        order_ids=sorted(rest, key=lambda order_id: order_id in busy),
        done=job.total - len(rest),
        refusals=job.refusals | refusals,
        status=JobStatus.RUNNING if rest else JobStatus.DONE,
    )
    if not rest:
        return None
    return pause_s if outcomes else RETRY_S


def _change(job: OrderJob, order_id: int) -> str:
    """Change one order and return the reason for a refusal, or an empty text."""
    try:
        end_order(kind=job.kind, order_id=order_id, by=Actor.staff(job.actor_id), why=job.why)
    except (Busy, *UNAVAILABLE):
        raise
    except VoucherOrder.DoesNotExist:
        return NO_SUCH_ORDER
    except WrongState as error:
        return "" if _has_changed(job, order_id) else error.status
    except Exception:
        # One broken order must not block the others forever.
        logger.exception("job %s failed at order %s", job, order_id)
        return "" if _has_changed(job, order_id) else FAILED
    return ""


def _has_changed(job: OrderJob, order_id: int) -> bool:
    """Return whether another worker of this job, dead or alive, has already changed the order."""
    return OrderEvent.objects.filter(
        order=order_id,
        after=_BECOMES[OrderJob.Kind(job.kind)],
        at__gte=job.created_at,
        actor_kind=ActorKind.STAFF,
        actor=job.actor_id,
        reason=job.why,
    ).exists()


def refusal_text(refusal: str) -> str:
    """Describe why an order was not changed."""
    if refusal in OrderStatus.values:
        return gettext("it is %(status)s") % {"status": OrderStatus(refusal).label}
    return gettext(refusal)
