"""K9: an hour without workers, and clocks that differ; no message is thrown away for it."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from kombu import Connection

from orders.fulfilment.sweep import sweep
from orders.tasks import fulfil_sale
from seckill_site.broker import schedule
from seckill_site.broker.pace import AWAKE, stay_awake
from seckill_site.broker.schedule import MonotonicScheduler
from seckill_site.celery import app
from seckill_site.clocks.database import database_now
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.conftest import with_clock
from tests.faults.history import History, Report
from tests.support.inspection import broker_client, empty_broker
from tests.support.patience import wait_for
from tests.support.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 30
RECOVERY_SECONDS = 15.0
HOUR_S, STEP_S = 3_600, 60
MOST_OF_BEAT = 20
"""The messages that beat has, at both paces."""

QUEUES = [it.name for it in settings.CELERY_TASK_QUEUES]


@pytest.fixture(autouse=True)
def own_broker() -> Iterator[None]:
    empty_broker()
    yield
    empty_broker()


def test_control_message_that_expires_is_thrown_away_by_such_a_worker(stack: Stack) -> None:
    worker = stack.worker(**with_clock(10))
    with Connection(settings.CELERY_BROKER_URL) as broker:  # not one that an earlier test closed
        app.send_task(fulfil_sale.name, kwargs={"sale_id": 1}, expires=5, connection=broker)
    worker.wait_for_log("Discarding revoked task")


def test_k9_after_an_hour_without_workers_few_messages_wait(
    stack: Stack, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History("K9", "an hour without workers")
    sales = [make_sale(stock=BUYERS) for _ in range(2)]
    web = stack.web()
    now_s = [0.0]
    monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    scheduler: Any = MonotonicScheduler(app=app)
    for minute in range(HOUR_S // STEP_S):
        ledger_connection().delete(AWAKE) if minute % 5 else stay_awake()
        scheduler.tick()
        now_s[0] += STEP_S
    expected = len(messages()) + len(sales)
    assert expected <= MOST_OF_BEAT + len(sales)
    for sale in sales:
        history.fire(sale, crowd_of(sale, count=BUYERS), url=web.url)
    for _ in range(3):
        sweep(now=database_now(), at_once=True)
    wait_for(lambda: len(messages()) >= expected, what="messages")
    waiting = Counter(map(described, messages()))
    assert set(waiting.values()) == {1}, waiting
    assert len(waiting) == expected

    with history.fault():
        stack.worker()
    for sale in sales:
        history.settle(sale)
        outcome = history.check(sale, recovery_seconds=RECOVERY_SECONDS)
        assert outcome.orders == BUYERS
    report(outcome)


def messages() -> list[Any]:
    """Return what waits in all queues."""
    return [raw for queue in QUEUES for raw in broker_client().lrange(queue, 0, -1)]


def described(raw: bytes | str) -> str:
    """Return what a message asks for."""
    message = json.loads(raw)
    return f"{message['headers']['task']} {base64.b64decode(message['body']).decode()}"
