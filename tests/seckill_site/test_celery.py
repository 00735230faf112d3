"""The worker's connections to the database: kept between tasks, but no stale one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from celery.signals import task_prerun
from django.db import connection

from bench.around.measuring import sql
from orders.placing.publishing import publish
from orders.tasks import drop_stale_facts
from seckill_site.clocks.database import database_now
from seckill_site.models import StaleFact
from tests.support.patience import wait_for
from tests.support.worker_here import worker_here

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.concurrency,
    pytest.mark.usefixtures("row_locks"),
]


@pytest.fixture
def worker() -> Iterator[None]:
    """A worker in a thread, with a connection of its own."""
    with worker_here():
        yield


def run_a_task() -> None:
    StaleFact.objects.create(name="a fact", due_at=database_now() - dt.timedelta(seconds=1))
    publish(drop_stale_facts.name)
    wait_for(lambda: not StaleFact.objects.exists(), what="the task's work")


def others() -> list[int]:
    """Return the ids of the connections that are not this thread's."""
    found = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id != %s"
    return [row[0] for row in sql(found, sql("SELECT CONNECTION_ID()")[0][0])]


@pytest.mark.usefixtures("worker")
def test_worker_keeps_its_connection_between_tasks() -> None:
    run_a_task()
    before = others()
    for _ in range(5):
        run_a_task()
    assert others() == before
    assert len(before) == 1


@pytest.mark.usefixtures("worker")
def test_connection_killed_between_two_tasks_is_replaced() -> None:
    run_a_task()
    (killed,) = others()
    sql(f"KILL {killed}")
    wait_for(lambda: killed not in others(), what="its end")
    run_a_task()
    assert len(others()) == 1


@pytest.mark.parametrize("what", ["too old", "after an error"])
def test_connection_is_closed_before_a_task(what: str) -> None:
    sql("SELECT 1")
    if what == "too old":
        connection.close_at = 0.0
    else:
        connection.errors_occurred = True
    task_prerun.send(sender=drop_stale_facts)
    assert connection.connection is None
