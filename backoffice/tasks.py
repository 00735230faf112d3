"""Celery's side of the back office: each task translates and makes one domain call.

Tasks keep the names that they had in ``orders.tasks``: messages may still be queued.
"""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from backoffice import bulk_jobs
from backoffice.rehearsal import service as rehearsal


@shared_task(name="orders.tasks.resume_jobs")
def resume_jobs(**kwargs: Any) -> None:
    """Send again the jobs that their worker has left."""
    bulk_jobs.resume_jobs(publish=bulk_jobs.publish_job, now=timezone.now())


@shared_task(name="orders.tasks.work_at_job")
def work_at_job(*, job_id: int, **kwargs: Any) -> None:
    """Go on with what staff asked for on many orders."""
    if bulk_jobs.work_at(job_id=job_id):
        bulk_jobs.publish_job(job_id=job_id)


@shared_task(name="orders.tasks.resume_rehearsals")
def resume_rehearsals(**kwargs: Any) -> None:
    """Send again the rehearsal that its process has left."""
    rehearsal.resume_rehearsals(publish=rehearsal.publish_rehearsal, now=timezone.now())


# A step fires for some seconds, or clears up for some; the slowest waits for each answer in vain.
@shared_task(name="orders.tasks.work_at_rehearsal", soft_time_limit=40, time_limit=50)
def work_at_rehearsal(*, rehearsal_id: int, turn: int, **kwargs: Any) -> None:
    """Do the next step of a rehearsal, and hand on to the one after it."""
    step = rehearsal.work_at(rehearsal_id=rehearsal_id, turn=turn, now=timezone.now())
    if step:
        rehearsal.publish_rehearsal(rehearsal_id=rehearsal_id, turn=step.turn, in_s=step.pause_s)
