"""The engine of background jobs: each message runs one step of a job, and its row holds the state.

A step takes a few seconds at most, so that a single worker has time for orders in between. It is
recorded under the number of its turn. A job that records nothing for the length of its lease has
lost its process; beat then resumes it after the last recorded step.
"""

import datetime as dt
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError
from django.db.models import F, QuerySet

from orders.models.jobs import BackgroundJob
from vouchers.inventory.keys import LedgerUnavailable

logger = logging.getLogger(__name__)

LEASE = dt.timedelta(seconds=20)
"""Time without a recorded step after which another process resumes the job."""

RETRY_S = 1.0
"""Delay before the retry of a step that failed because Redis or the database did not respond."""

UNAVAILABLE = (LedgerUnavailable, OperationalError, InterfaceError)
"""Errors that leave unknown whether the step was done; repeating it is safe."""

Job = TypeVar("Job", bound=BackgroundJob)


class Superseded(Exception):
    """Another process has recorded this turn, or the job has ended."""


@dataclass(frozen=True)
class Turn:
    """The next step of a job, due after a pause."""

    job_id: int
    number: int
    pause_s: float = 0.0


def record_step(job: BackgroundJob, *, now: dt.datetime, **changes: Any) -> None:
    """Record a step. Inside a transaction the row stays locked until the commit.

    :raises Superseded: another process has recorded the turn; nothing was written.
    """
    rows = type(job)._default_manager.filter(job.RUNNING, pk=job.pk, turn=job.turn)
    if not rows.update(turn=F("turn") + 1, changed_at=now, **changes):
        raise Superseded(f"{job} is past turn {job.turn}")
    job.turn += 1
    for name, value in changes.items():
        setattr(job, name, value)


def do_turn(
    due: QuerySet[Job], step: Callable[[Job, dt.datetime], float | None], *, now: dt.datetime
) -> Turn | None:
    """Run one step of the job, if it exists, and return its next turn; None after the last.

    ``step`` records itself. It returns the seconds until the next step, or None after the last.
    """
    job = due.first()
    if job is None:
        return None
    try:
        pause_s = step(job, now)
    except UNAVAILABLE as error:
        logger.warning("%s waits: %r", job, error)
        pause_s = RETRY_S
    except Superseded:
        return None
    return None if pause_s is None else Turn(job.pk, job.turn, pause_s)


def resume(
    jobs: QuerySet[Job], *, now: dt.datetime, changes: Callable[[Job], dict[str, Any]] | None = None
) -> list[Turn]:
    """Start a new turn of each running job whose lease has expired; return the turns to publish.

    ``changes`` returns other fields to record for an interrupted job.
    """
    turns = []
    for job in jobs.filter(jobs.model.RUNNING, changed_at__lt=now - LEASE).order_by("pk"):
        with suppress(Superseded):
            record_step(job, now=now, **(changes(job) if changes else {}))
            turns.append(Turn(job.pk, job.turn))
    return turns
