"""The Celery tasks: their names and arguments are an API."""

from __future__ import annotations

import datetime as dt
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import task_failure, worker_ready
from django.conf import settings as django_settings
from django.core import mail
from django.db import OperationalError
from django.test import Client
from pytest_django import Settings
from redis import Redis

from orders import tasks
from orders.fulfilment import sale_pass, worker
from orders.lifecycle import notices
from orders.placing.publishing import publish_fulfilment
from seckill_site.broker import consumer
from seckill_site.broker.messages import MESSAGE_FORMAT, is_newer, publish_options
from seckill_site.broker.schedule import MonotonicScheduler
from seckill_site.celery import app
from seckill_site.clocks.database import database_now
from seckill_site.models import StaleFact
from tests.support.inspection import (
    assert_conserved,
    broker_length,
    live_ids,
    pending_ids,
    publishes,
)
from tests.support.notices import make_notice, make_reader
from tests.support.orders import make_buyer, make_buyers, make_sale, reserved, token_for
from tests.support.patience import wait_for
from tests.support.sales import change_state
from tests.support.worker_here import worker_here
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import AnswerCount, SeckillVoucher

pytestmark = pytest.mark.django_db


def test_task_names_are_those_of_older_releases() -> None:
    names = {"orders.tasks.fulfill_sale", "orders.tasks.sweep", "orders.tasks.reconcile"}
    assert names <= set(app.tasks)
    assert all(app.tasks[name].ignore_result for name in names)


def test_beat_sends_existing_tasks_that_wait_once() -> None:
    app.loader.import_default_modules()
    for entry in django_settings.CELERY_BEAT_SCHEDULE.values():
        assert entry["task"] in app.tasks
        assert entry["options"] == publish_options(once=True)


def test_left_notices_follow_behind_the_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "AT_ONCE", 1)
    sale = make_sale(begins_in_s=300)
    for _ in range(2):
        make_notice(sale, make_reader())

    tasks.send_notices()
    assert (len(mail.outbox), broker_length()) == (1, 1)
    tasks.send_notices()
    tasks.send_notices()
    assert (len(mail.outbox), broker_length()) == (2, 1)


def test_cut_off_process_gives_its_task_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*, sale_id: int) -> bool:
        raise worker.CutOff(2002, "no connection")

    sale = make_sale()
    monkeypatch.setattr(worker, "fulfil_sale", cut_off)
    for _ in range(3):  # one message waits, however many processes fail
        with pytest.raises(worker.CutOff):
            tasks.fulfil_sale(sale_id=sale.pk)
    assert broker_length() == 1


@pytest.mark.parametrize(
    ("error", "pauses"), [(worker.CutOff(2002), [tasks.CUT_OFF_S]), (ValueError(), [])]
)
def test_process_without_database_takes_no_task_for_a_while(
    monkeypatch: pytest.MonkeyPatch, error: Exception, pauses: list[float]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(tasks, "time", SimpleNamespace(sleep=slept.append))
    task_failure.send(sender=tasks.sweep, exception=error)
    assert slept == pauses


def group(*passes: Any) -> Any:
    """Run these passes as one message of the queue of orders."""
    return tasks.run_passes.apply(
        kwargs={"names": [it.name for it in passes]}, routing_key="celery"
    )


@pytest.mark.django_db(transaction=True)
def test_failed_pass_is_reported_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cut_off(**_: Any) -> None:
        raise OperationalError(2002, "no connection")

    slept, ran = list[float](), list[str]()
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: 0.0)
    monkeypatch.setattr(tasks, "time", clock)
    monkeypatch.setattr("orders.fulfilment.sweep.sweep", cut_off)
    facts = "seckill_site.redis.cached_facts.drop_stale_facts"
    monkeypatch.setattr(facts, lambda: ran.append("facts"))
    group(tasks.sweep, tasks.drop_stale_facts)
    assert (slept, ran) == ([tasks.CUT_OFF_S], ["facts"])
    assert "orders.tasks.sweep" in caplog.text
    assert "OperationalError" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_rest_of_a_slow_group_waits_behind_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, tasks.TURN_S + 0.1])
    monkeypatch.setattr(tasks, "time", SimpleNamespace(monotonic=lambda: next(now)))
    for _ in range(2):
        now = iter([0.0, 0.0, tasks.TURN_S + 0.1])
        group(tasks.drop_stale_facts, tasks.store_visits, tasks.sweep, tasks.expire)
    assert broker_length() == 1  # the same rest waits once
    assert json.loads(queued()["headers"]["kwargsrepr"].replace("'", '"')) == {
        "names": [tasks.sweep.name, tasks.expire.name]
    }


def test_no_task_with_limits_of_its_own_shares_a_message() -> None:
    app.loader.import_default_modules()
    groups = MonotonicScheduler(app=app)._groups()
    shared = [entry.task for entries in groups.values() if len(entries) > 1 for entry in entries]
    assert len(shared) > 10
    limits = {app.tasks[name].soft_time_limit for name in shared}
    assert limits == {app.conf.task_soft_time_limit}


def test_unknown_task_arguments_are_ignored() -> None:
    sale = make_sale()
    reserved(sale, make_buyers(1))
    tasks.fulfil_sale(sale_id=sale.pk, priority="high")
    tasks.sweep(limit=3)
    tasks.reconcile(repair=False)
    assert pending_ids(sale) == []


def test_unfinished_work_publishes_one_task(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECKILL_BATCH_UNITS, settings.SECKILL_WORK_MS = 1, 3_000
    sale = make_sale()
    reserved(sale, make_buyers(5))
    seconds = iter(range(100))
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    for module in (worker, sale_pass):
        monkeypatch.setattr(module, "time", clock)
    tasks.fulfil_sale(sale_id=sale.pk)
    assert broker_length() == 1
    assert 0 < len(live_ids(sale)) < 5


def test_sweep_task_publishes_for_old_entries(ledger: Redis) -> None:
    sale, sent = make_sale(), publishes("sent")
    (token,) = reserved(sale, make_buyers(1))
    keys = LedgerKeys(sale.pk)
    ledger.zincrby(keys.pending, -60_000, f"{token.order_id}:{token.user_id}:1")
    ledger.delete(keys.kick)
    for _ in range(2):
        tasks.sweep()
    assert broker_length() == 1
    assert publishes("sent") == sent + 1


def test_starting_worker_sweeps_at_once(ledger: Redis) -> None:
    sale = make_sale()
    reserved(sale, make_buyers(1))
    ledger.delete(LedgerKeys(sale.pk).kick)
    worker_ready.send(None)
    assert "'at_once': True" in queued()["headers"]["kwargsrepr"]
    tasks.sweep(at_once=True)
    assert broker_length() == 2


def queued() -> Any:
    """Return the message at the end of the queue."""
    with Redis.from_url(django_settings.CELERY_BROKER_URL) as client:
        return json.loads(client.lrange("celery", 0, 0)[0])


def test_reconcile_task_repairs_running_sales(ledger: Redis) -> None:
    sale = make_sale()
    reserved(sale, make_buyers(2))
    tasks.fulfil_sale(sale_id=sale.pk)
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=1)
    change_state(sale.pk, total=3)
    tasks.reconcile()
    assert_conserved(sale)


def test_store_tallies_task_writes_finished_seconds(ledger: Redis) -> None:
    sale, second = make_sale(), int(time.time()) - 100
    ledger.hset(LedgerKeys(sale.pk).tally, f"{second}:sold_out", 3)
    tasks.store_tallies()
    stored = AnswerCount.objects.get(seckill_voucher=sale)
    assert (stored.at.timestamp(), stored.answer, stored.count) == (second, "sold_out", 3)


@pytest.mark.usefixtures("broker_refuses")
def test_publishing_never_raises() -> None:
    publish_fulfilment(sale_id=1)


@pytest.mark.django_db(transaction=True)
def test_worker_turns_a_request_into_an_order(client: Client) -> None:
    """One order through HTTP, ledger, broker, worker and database."""
    sale = make_sale()
    token = token_for(sale, make_buyer())
    with worker_here():
        answer = client.post(f"/vouchers/{sale.pk}/orders/", {"token": token.sign()})
        assert answer.status_code == 202
        headers = {"Purchase-Token": token.sign()}
        url = answer.json()["status_url"]
        wait_for(lambda: client.get(url, headers=headers).json()["status"] == "unpaid")
    assert live_ids(sale) == [token.order_id]
    wait_for(lambda: pending_ids(sale) == [])
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("newer", [1, 0], ids=["newer", "control"])
def test_message_of_a_newer_release_goes_back(newer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def noted(headers: dict[str, Any]) -> bool:
        seen.append(is_newer(headers))
        return seen[-1]

    monkeypatch.setattr(consumer, "is_newer", noted)
    monkeypatch.setattr(consumer, "GIVE_BACK_S", 0.02)
    StaleFact.objects.create(name="a fact", due_at=database_now() - dt.timedelta(seconds=1))
    with worker_here():
        options = publish_options()
        options["headers"]["format"] = MESSAGE_FORMAT + newer
        app.send_task(tasks.drop_stale_facts.name, **options)
        if newer:
            wait_for(lambda: seen.count(True) > 2, what="a message that comes again")
        else:
            wait_for(lambda: not StaleFact.objects.exists(), what="the task's work")
    assert StaleFact.objects.exists() == bool(newer)


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize(
    ("task", "work"),
    [
        ("watch_ledger", "orders.tasks.rebuild_after_restart"),
        ("reconcile", "orders.fulfilment.reconcile.reconcile_running"),
        ("restore_lines", "orders.lifecycle.waiting_list.restore_lines"),
        ("delete_old_refusals", "orders.audience.refusal_log.delete_old_refusals"),
        ("delete_old_rows", "orders.lifecycle.retention.delete_old_rows"),
        ("remove_ledgers", "orders.fulfilment.removal.remove_ledgers"),
        ("delete_ended_sessions", "accounts.old_sessions.delete_ended_sessions"),
        ("store_tallies", "orders.tasks.store_request_counts"),
        ("store_visits", "orders.lifecycle.room_visits.store_visits"),
        ("advance_draws", "orders.draws.drawing.advance_draws"),
    ],
)
def test_cut_pass_publishes_the_same_task(
    monkeypatch: pytest.MonkeyPatch, task: str, work: str, is_left: bool
) -> None:
    monkeypatch.setattr(work, lambda **_: is_left)
    getattr(tasks, task)()
    assert broker_length() == is_left
    if is_left:
        assert queued()["headers"]["task"] == f"orders.tasks.{task}"
