"""The worker's connections to the database: kept between tasks, but no stale one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

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


def others() -> set[int]:
    """Return all connections but this one, which the start of a worker replaces."""
    listed = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"
    return {row[0] for row in sql(listed)}


@pytest.fixture
def opened() -> Iterator[Callable[[], set[int]]]:
    """Run a worker in a thread; return the connections since then, which are the worker's."""
    before = others()
    with worker_here():
        yield lambda: others() - before


def run_a_task() -> None:
    StaleFact.objects.create(name="a fact", due_at=database_now() - dt.timedelta(seconds=1))
    publish(drop_stale_facts.name)
    wait_for(lambda: not StaleFact.objects.exists(), what="the task's work")


def test_worker_keeps_its_connection_between_tasks(opened: Callable[[], set[int]]) -> None:
    run_a_task()
    (kept,) = opened()
    for _ in range(5):
        run_a_task()
    assert opened() == {kept}


def test_connection_killed_between_two_tasks_is_replaced(opened: Callable[[], set[int]]) -> None:
    run_a_task()
    (killed,) = opened()
    sql(f"KILL {killed}")
    wait_for(lambda: not opened(), what="its end")
    run_a_task()
    assert len(opened()) == 1


@pytest.mark.parametrize("what", ["too old", "after an error"])
def test_connection_is_closed_before_a_task(what: str) -> None:
    sql("SELECT 1")
    if what == "too old":
        connection.close_at = 0.0
    else:
        connection.errors_occurred = True
    task_prerun.send(sender=drop_stale_facts)
    assert connection.connection is None
