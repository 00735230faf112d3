"""Beat's schedule, measured by the monotonic clock."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from seckill_site.broker import schedule
from seckill_site.broker.schedule import RETRY_S, MonotonicScheduler
from seckill_site.celery import app


class FakeBroker:
    """What a schedule sends, and the clock that it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.refuses, self.sent, self.closed = 1_000.0, False, list[str](), 0
        monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(app.conf, "beat_schedule", {"quick": entry(2.0), "slow": entry(300.0)})
        self.scheduler: Any = MonotonicScheduler(app=app)
        monkeypatch.setattr(MonotonicScheduler, "producer", None)
        monkeypatch.setattr(self.scheduler, "apply_async", self.send)
        monkeypatch.setattr(self.scheduler, "close", self.close)

    def send(self, entry: Any, **options: Any) -> None:
        if self.refuses:
            raise ConnectionError
        self.sent.append(entry.name)

    def close(self) -> None:
        self.closed += 1


def entry(seconds: float) -> dict[str, object]:
    return {"task": "orders.tasks.sweep", "schedule": dt.timedelta(seconds=seconds)}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    return FakeBroker(monkeypatch)


def test_every_task_is_due_at_the_start_and_then_by_its_interval(broker: FakeBroker) -> None:
    assert broker.scheduler.tick() == 2.0
    assert sorted(broker.sent) == ["quick", "slow"]
    broker.now += 1.5
    assert broker.scheduler.tick() == 0.5
    broker.now += 0.5
    assert broker.scheduler.tick() == 2.0
    assert sorted(broker.sent) == ["quick", "quick", "slow"]


def test_refused_task_is_tried_again_on_a_new_connection(broker: FakeBroker) -> None:
    broker.refuses = True
    assert broker.scheduler.tick() == RETRY_S
    assert (broker.sent, broker.closed) == ([], 1)
    broker.refuses = False
    broker.scheduler.tick()
    assert sorted(broker.sent) == ["quick", "slow"]
