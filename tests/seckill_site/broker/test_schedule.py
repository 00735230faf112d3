"""Beat's schedule, measured by the monotonic clock: what goes together, and at which pace."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from redis.exceptions import ConnectionError as RedisDown

from seckill_site.broker import schedule
from seckill_site.broker.pace import QUIET_PACE
from seckill_site.broker.schedule import RETRY_S, MonotonicScheduler
from seckill_site.celery import app

GROUP = "orders.tasks.run_passes"


class FakeBroker:
    """What a schedule sends, and the clock and the key that it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.refuses, self.sent, self.closed = 1_000.0, False, list[Any](), 0
        self.key, self.redis_is_down, self.noted = True, False, list[bool]()
        monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: self.now))
        entries = {
            "sweep": entry("sweep", 2.0),
            "expire": entry("expire", 2.0),
            "poll_payments": entry("poll_payments", 2.0),
            "slow": entry("settle_payments", 300.0),
        }
        monkeypatch.setattr(app.conf, "beat_schedule", entries)
        client = SimpleNamespace(exists=self.exists)
        monkeypatch.setattr(schedule, "ledger_connection", lambda: client)
        monkeypatch.setattr(schedule, "stay_awake", self.stay_awake)
        monkeypatch.setattr(schedule, "note_beat", self.note_beat)
        self.scheduler: Any = MonotonicScheduler(app=app)
        monkeypatch.setattr(MonotonicScheduler, "producer", None)
        monkeypatch.setattr(self.scheduler, "apply_async", self.send)
        monkeypatch.setattr(self.scheduler, "close", self.close)

    def exists(self, _: str) -> int:
        if self.redis_is_down:
            raise RedisDown
        return int(self.key)

    def note_beat(self, *, is_quiet: bool) -> None:
        self.noted.append(is_quiet)

    def stay_awake(self) -> None:
        self.key = bool(self.exists(""))
        self.key = True

    def send(self, entry: Any, **options: Any) -> None:
        if self.refuses:
            raise ConnectionError
        self.sent.append(entry)

    def close(self) -> None:
        self.closed += 1

    def tick(self, *, later_s: float = 0.0) -> tuple[float, list[str]]:
        """Return for how long beat then waits, and what it has sent."""
        self.now += later_s
        before = len(self.sent)
        waits_s = self.scheduler.tick()
        return waits_s, [name(it) for it in self.sent[before:]]

    def fall_quiet(self) -> None:
        self.tick()
        self.key = False


def name(entry: Any) -> str:
    tasks = entry.kwargs["names"] if entry.task == GROUP else [entry.task]
    return "+".join(it.removeprefix("orders.tasks.") for it in tasks)


def entry(task: str, seconds: float) -> dict[str, object]:
    return {"task": f"orders.tasks.{task}", "schedule": dt.timedelta(seconds=seconds)}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    return FakeBroker(monkeypatch)


ALL = ["sweep+expire", "poll_payments", "settle_payments"]


def test_every_task_is_due_at_the_start_and_then_by_its_interval(broker: FakeBroker) -> None:
    assert broker.tick() == (2.0, ALL)
    assert broker.tick(later_s=1.5) == (0.5, [])
    assert broker.tick(later_s=0.5) == (2.0, ALL[:2])
    assert broker.tick(later_s=2.5) == (1.5, ALL[:2])  # late once, not from then on


def test_tasks_of_one_queue_and_interval_share_a_message(broker: FakeBroker) -> None:
    broker.tick()
    together, alone, _ = broker.sent
    assert (together.task, together.options["queue"]) == (GROUP, "celery")
    assert alone is broker.scheduler.schedule["poll_payments"]


def test_refused_task_is_tried_again_on_a_new_connection(broker: FakeBroker) -> None:
    broker.refuses = True
    assert broker.tick() == (RETRY_S, [])
    assert broker.closed == 1
    broker.refuses = False
    assert broker.tick()[1] == ALL


def test_what_may_wait_is_sent_less_often_while_quiet(broker: FakeBroker) -> None:
    broker.fall_quiet()
    sent = [it for _ in range(QUIET_PACE * 6) for it in broker.tick(later_s=2.0)[1]]
    assert [sent.count(it) for it in ("sweep", "expire", "poll_payments")] == [
        30,
        7,
        7,
    ]  # once more at the change


def test_first_sign_of_life_brings_the_pace_back_at_once(broker: FakeBroker) -> None:
    broker.fall_quiet()
    broker.tick(later_s=2.0)
    broker.key = True
    assert broker.tick(later_s=2.0) == (2.0, ALL[:2])


def test_beat_is_awake_at_its_start_without_a_key(broker: FakeBroker) -> None:
    broker.key = False
    assert broker.tick()[1] == ALL
    assert broker.key


def test_beat_is_awake_without_redis_and_after_it(broker: FakeBroker) -> None:
    broker.fall_quiet()
    broker.redis_is_down = True
    assert broker.tick(later_s=2.0)[1] == ALL[:2]
    broker.redis_is_down = False
    assert broker.tick(later_s=2.0)[1] == ALL[:2]
    assert broker.key


def test_beat_notes_that_it_runs_even_if_the_broker_refuses(broker: FakeBroker) -> None:
    broker.refuses = True
    broker.tick()
    broker.key = False
    broker.tick(later_s=2.0)
    assert broker.noted == [False, True]


@pytest.mark.slow
def test_few_different_messages_are_sent_at_both_paces(
    monkeypatch: pytest.MonkeyPatch, broker: FakeBroker
) -> None:
    """Each message waits only once, so a queue without workers stays short."""
    monkeypatch.setattr(app.conf, "beat_schedule", settings.CELERY_BEAT_SCHEDULE)
    broker.scheduler = scheduler = MonotonicScheduler(app=app)
    monkeypatch.setattr(scheduler, "apply_async", broker.send)
    for minute in range(60):
        broker.key = minute % 3 == 0
        for _ in range(60):
            broker.tick(later_s=1.0)
    assert len({(it.task, name(it)) for it in broker.sent}) <= 20
