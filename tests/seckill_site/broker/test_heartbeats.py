"""Heartbeats: who notes what, and what that says about the processes behind the shop."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings

from orders import tasks
from seckill_site import process_memory
from seckill_site.broker.heartbeats import (
    EVERY_S,
    HEARTBEATS,
    QUIET,
    SINCE,
    Heartbeat,
    State,
    note_beat,
    note_queues,
    note_task,
    read_heartbeats,
)
from seckill_site.process_memory import forget_everything
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.heartbeats import ORDERS, note, note_all
from tests.support.patience import wait_for
from tests.support.sales import redis_now_ms
from tests.support.worker_here import worker_here

ALL = {"redis": True, "database": True, "broker": True, "orders": True}
EXPIRE, TALLIES = "task:orders.tasks.expire", "task:orders.tasks.store_tallies"
MAILS, SETTLE = "task:orders.tasks.tell_buyers", "task:orders.tasks.settle_payments"
POLL, HOOKS = "task:orders.tasks.poll_payments", "task:api.tasks.send_webhooks"


def read(**gone: bool) -> dict[str, Heartbeat]:
    return {it.name: it for it in read_heartbeats({**ALL, **gone})}


def missing(**gone: bool) -> dict[str, State]:
    return {name: it.state for name, it in read(**gone).items() if it.is_missing}


# --- What is expected, and when it is missing -----------------------------------------------------


def test_every_queue_and_task_and_beat_ought_to_run() -> None:
    note_all()
    beats = read()
    queues = {f"queue:{it.name}" for it in settings.CELERY_TASK_QUEUES}
    scheduled = {f"task:{it['task']}" for it in settings.CELERY_BEAT_SCHEDULE.values()}
    assert set(beats) == {*queues, "beat", *scheduled}
    assert {it.state for it in beats.values()} == {State.RUNS}


@pytest.mark.parametrize("name", [ORDERS, "queue:payments", "beat", EXPIRE])
@pytest.mark.parametrize(("age_s", "expected"), [(28.0, State.RUNS), (31.0, State.LATE)])
def test_silence_of_thirty_seconds_is_late(name: str, age_s: float, expected: State) -> None:
    note_all({name: age_s})
    assert read()[name].state == expected
    assert read()[name].age_s == pytest.approx(age_s, abs=1)


@pytest.mark.parametrize(
    ("task", "is_quiet", "runs_s", "late_s"),
    [
        (SETTLE, False, 3_590, 3_610),
        (SETTLE, True, 3_590, 3_610),
        (TALLIES, False, 28, 32),
        (TALLIES, True, 98, 102),
        (MAILS, False, 28, 32),
        (MAILS, True, 48, 52),
    ],
)
def test_task_is_late_after_twice_its_interval_of_the_moment(
    task: str, is_quiet: bool, runs_s: int, late_s: int
) -> None:
    for age_s, expected in ((runs_s, State.RUNS), (late_s, State.LATE)):
        note_all({task: age_s, QUIET: 5 if is_quiet else 3600})
        assert read()[task].state == expected


def test_slow_task_has_time_to_catch_up_when_the_shop_wakes() -> None:
    note_all({TALLIES: 60, QUIET: 20})
    assert missing() == {}
    note({QUIET: 31})
    assert missing() == {TALLIES: State.LATE}


def test_time_to_come_counts_as_old() -> None:
    """The clock of Redis went back: a mark from before would otherwise be good for an hour."""
    note_all({ORDERS: -3_600})
    assert missing() == {ORDERS: State.LATE}


def test_shop_without_worker_and_beat_names_both_as_never_started() -> None:
    assert set(missing()) == {ORDERS, "queue:payments", "queue:webhooks", "beat"}
    assert set(missing().values()) == {State.NEVER}
    assert read()[ORDERS].age_s is None


@pytest.mark.parametrize("name", ["queue:webhooks", "beat", MAILS])
def test_what_never_started_is_missing_after_thirty_seconds(name: str) -> None:
    note_all({SINCE: 28}, without=name)
    assert read()[name].state == State.UNKNOWN
    note({SINCE: 31})
    assert missing() == {name: State.NEVER}


# --- Causes ---------------------------------------------------------------------------------------

OLD_TASKS = dict.fromkeys((EXPIRE, MAILS, POLL, HOOKS), 3600.0)


def test_late_beat_alone_is_named_not_its_tasks() -> None:
    note_all({"beat": 360, **OLD_TASKS})
    assert missing() == {"beat": State.LATE}
    assert read()[EXPIRE].state == State.UNKNOWN


def test_late_worker_is_named_and_tasks_of_other_queues() -> None:
    note_all({ORDERS: 45, **OLD_TASKS})
    assert set(missing()) == {ORDERS, POLL, HOOKS}


def test_task_that_its_worker_does_not_finish_is_named() -> None:
    note_all({EXPIRE: 45})
    assert missing() == {EXPIRE: State.LATE}


def test_missing_servers_explain_what_needs_them() -> None:
    note_all({ORDERS: 45, "beat": 31, EXPIRE: 45})
    assert set(missing(broker=False)) == {"beat"}
    note_all({EXPIRE: 45})
    assert missing(database=False) == {}


@pytest.mark.parametrize("is_full", [False, True])
def test_without_redis_everything_is_unknown(
    is_full: bool, lose_ledger: Callable[[], None]
) -> None:
    note_all({ORDERS: 45})
    if not is_full:  # a full one still answers, but takes no note
        lose_ledger()
    assert {it.state for it in read(redis=not is_full).values()} == {State.UNKNOWN}


# --- Who notes what -------------------------------------------------------------------------------


def noted() -> set[str]:
    return set(ledger_connection().hkeys(HEARTBEATS)) - {SINCE}


def test_worker_notes_the_queues_it_takes_from_every_ten_seconds() -> None:
    repeated = list[tuple[float, Callable[[], None]]]()
    queues = SimpleNamespace(consume_from={"payments": None})
    sender = SimpleNamespace(
        app=SimpleNamespace(amqp=SimpleNamespace(queues=queues)),
        timer=SimpleNamespace(call_repeatedly=lambda s, call: repeated.append((s, call))),
    )
    note_queues(sender=sender)
    assert noted() == {"queue:payments"}

    ledger_connection().delete(HEARTBEATS)
    [(every_s, again)] = repeated
    again()
    assert (every_s, noted()) == (EVERY_S, {"queue:payments"})


def test_beat_notes_itself_and_its_slower_pace() -> None:
    note_beat(is_quiet=False)
    assert noted() == {"beat"}
    note_beat(is_quiet=True)
    assert noted() == {"beat"}  # at most every ten seconds
    forget_everything()
    note_beat(is_quiet=True)
    assert noted() == {"beat", QUIET}


def test_notes_are_by_the_clock_of_redis_and_keep_the_first() -> None:
    before_ms = redis_now_ms()
    note_beat(is_quiet=False)
    first = int(ledger_connection().hget(HEARTBEATS, SINCE))
    assert before_ms <= first <= redis_now_ms()
    forget_everything()
    note_beat(is_quiet=False)
    assert int(ledger_connection().hget(HEARTBEATS, SINCE)) == first


def test_key_of_a_wrong_type_is_made_again() -> None:
    ledger_connection().set(HEARTBEATS, "by hand")
    assert {it.state for it in read().values()} == {State.UNKNOWN}
    note_beat(is_quiet=False)
    assert noted() == {"beat"}


def test_lost_redis_stops_no_one(lose_ledger: Callable[[], None]) -> None:
    lose_ledger()
    note_beat(is_quiet=True)
    finish("expire", is_eager=False)


def finish(name: str, *, is_eager: bool) -> None:
    request = SimpleNamespace(is_eager=is_eager)
    note_task(sender=SimpleNamespace(name=f"orders.tasks.{name}", request=request))


def test_tasks_of_a_message_are_noted_together_at_its_end(ledger_trips: list[int]) -> None:
    note_beat(is_quiet=False)  # the server knows the script from now on
    ledger_connection().delete(HEARTBEATS)
    ledger_trips.clear()
    finish("expire", is_eager=True)
    finish("store_tallies", is_eager=True)
    assert ledger_trips == []
    finish("run_passes", is_eager=False)
    assert len(ledger_trips) == 1
    assert noted() == {EXPIRE, TALLIES}


def test_tasks_are_noted_every_ten_seconds_and_none_is_lost(
    ledger_trips: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    note_beat(is_quiet=False)  # the server knows the script from now on
    ledger_trips.clear()
    for name in ("expire", "store_tallies", "settle_payments", "expire"):
        finish(name, is_eager=False)
    assert len(ledger_trips) == 1

    now_s = time.monotonic()
    monkeypatch.setattr(process_memory, "monotonic", lambda: now_s + EVERY_S)
    finish("expire", is_eager=False)

    assert len(ledger_trips) == 2
    assert noted() == {"beat", EXPIRE, TALLIES, SETTLE}


def test_task_of_an_order_notes_nothing(ledger_trips: list[int]) -> None:
    finish("fulfill_sale", is_eager=False)
    assert ledger_trips == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_worker_notes_what_it_finished_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise ValueError("this pass fails")

    monkeypatch.setattr("orders.payments.expiry.expire_orders", fail)
    names = [tasks.expire.name, tasks.drop_stale_facts.name]
    with worker_here():
        tasks.run_passes.apply_async(kwargs={"names": names})
        done = "task:orders.tasks.drop_stale_facts"
        wait_for(lambda: done in noted(), what="note")
    assert noted() == {done}
