"""Celery's side of the back office: each task makes one domain call and publishes what follows.

Tasks keep the names that they had in ``orders.tasks``: messages may still be queued.
"""

from typing import Any

from celery import shared_task

from backoffice import bulk_jobs, deadlines
from backoffice.job_engine import resume
from backoffice.rehearsal import service as rehearsal
from backoffice.report import day_sums
from orders.models import OrderJob
from orders.placing.publishing import publish
from seckill_site.broker.pace import note_life
from seckill_site.clocks.database import database_now


@shared_task(name="orders.tasks.look_ahead")
def look_ahead(**kwargs: Any) -> None:
    """Wake the shop if something falls due soon."""
    if deadlines.something_is_due(now=database_now()):
        note_life()


@shared_task(name="orders.tasks.sum_days")
def sum_days(**kwargs: Any) -> None:
    """Sum up what orders did by day; publish the task again if changes are left."""
    if day_sums.sum_days(now=database_now()):
        publish(sum_days.name)


@shared_task(name="orders.tasks.resume_jobs")
def resume_jobs(**kwargs: Any) -> None:
    """Resume the bulk jobs whose lease has expired."""
    for turn in resume(OrderJob.objects.all(), now=database_now()):
        bulk_jobs.publish_job(job_id=turn.job_id)


@shared_task(name="orders.tasks.work_at_job")
def work_at_job(*, job_id: int, **kwargs: Any) -> None:
    """Run the next step of a bulk job and publish the one after it."""
    note_life()
    turn = bulk_jobs.take_turn(job_id=job_id, now=database_now())
    if turn:
        bulk_jobs.publish_job(job_id=job_id, in_s=turn.pause_s)


@shared_task(name="orders.tasks.resume_rehearsals")
def resume_rehearsals(**kwargs: Any) -> None:
    """Resume the rehearsal whose lease has expired."""
    for turn in rehearsal.resume_rehearsals(now=database_now()):
        rehearsal.publish_rehearsal(rehearsal_id=turn.job_id, turn=turn.number)


# The slowest step waits for the timeout of each request.
@shared_task(name="orders.tasks.work_at_rehearsal", soft_time_limit=40, time_limit=50)
def work_at_rehearsal(*, rehearsal_id: int, turn: int, **kwargs: Any) -> None:
    """Run the next step of a rehearsal and publish the one after it."""
    following = rehearsal.take_turn(rehearsal_id=rehearsal_id, turn=turn, now=database_now())
    if following:
        rehearsal.publish_rehearsal(
            rehearsal_id=rehearsal_id, turn=following.number, in_s=following.pause_s
        )
