"""Calls of providers have a queue of their own, which no order waits behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from backoffice import bulk_jobs
from orders import tasks
from orders.payments import service
from seckill_site.celery import app
from tests.support.inspection import broker_client
from tests.support.orders import make_buyer, reserved_sale
from tests.support.patience import wait_for
from tests.support.worker_here import worker_here

CALLS_PROVIDERS = {
    tasks.expire_being_paid.name,
    tasks.poll_payments.name,
    tasks.finish_refunds.name,
    tasks.settle_payments.name,
    "orders.tasks.work_at_job",
}


def waiting(queue: str) -> list[str]:
    with broker_client() as client:
        return [json.loads(raw)["headers"]["task"] for raw in client.lrange(queue, 0, -1)]


@pytest.fixture(autouse=True)
def no_messages() -> Any:
    yield
    with broker_client() as client:
        client.delete("celery", "payments")
    app.amqp.queues.select(["celery", "payments"])  # a worker in this process may have chosen one


def test_calls_of_providers_have_their_queue() -> None:
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        app.send_task(entry["task"], **entry["options"])
    bulk_jobs.publish_job(job_id=1)
    tasks.fulfil_sale.delay(sale_id=1)
    assert set(waiting("payments")) == CALLS_PROVIDERS
    assert not CALLS_PROVIDERS.intersection(waiting("celery"))
    assert tasks.fulfil_sale.name in waiting("celery")
    assert tasks.expire.name in waiting("celery")


@pytest.mark.django_db(transaction=True)
def test_plain_worker_runs_tasks_of_both_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    polled = list[object]()
    monkeypatch.setattr(service, "poll_payments", lambda *, now: polled.append(now))
    with worker_here():
        tasks.poll_payments.delay()
        wait_for(lambda: polled, what="the task of the queue payments")


@pytest.mark.django_db(transaction=True)
def test_slow_provider_delays_no_order() -> None:
    """Without a worker for payments, its tasks wait and orders are written."""
    sale, tokens = reserved_sale([make_buyer()])
    for _ in range(20):
        tasks.poll_payments.delay()
    tasks.fulfil_sale.delay(sale_id=sale.pk)
    with worker_here(queues=["celery"]):
        wait_for(lambda: sale.orders.filter(pk=tokens[0].order_id).exists(), what="the order")
    assert len(waiting("payments")) == 20
