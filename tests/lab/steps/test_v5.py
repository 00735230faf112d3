"""V5: a promise that only a process remembers."""

from __future__ import annotations

from queue import SimpleQueue

import pytest
from django.db import OperationalError

from lab.steps import STEPS, v5
from lab.steps.step import Answer
from tests.lab.steps.meeting import Died, at, buy, die, passed, write_all, writer_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def empty_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    restart_process(monkeypatch)


def restart_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a process that dies forgets."""
    monkeypatch.setattr(v5, "_waiting", SimpleQueue())


def test_points_follow_the_statements() -> None:
    sale_id = STEPS["v5"].open(1)
    assert passed(lambda: buy("v5", sale_id, 1)) == ["decided", "queued"]
    assert passed(lambda: buy("v5", sale_id, 2)) == ["decided"]
    assert passed(writer_of(STEPS["v5"]).work_once) == [
        "taken from the queue",
        *("orders counted", "unit taken", "order written"),
        "committed",
    ]


def test_writer_writes_queued_orders_in_order() -> None:
    step = STEPS["v5"]
    sale_id, writer = step.open(2), writer_of(step)
    assert [buy("v5", sale_id, user_id) for user_id in (8, 3)] == [Answer.QUEUED] * 2
    assert step.rows(sale_id) == []
    assert [writer.work_once() for _ in range(3)] == [True, True, False]
    assert step.rows(sale_id) == [8, 3]


def test_sales_share_one_queue() -> None:
    step = STEPS["v5"]
    sale_ids = [step.open(1), step.open(1)]
    for sale_id in sale_ids:
        buy("v5", sale_id, 1)
    write_all(step, sale_ids[1], until=1)
    assert [step.rows(sale_id) for sale_id in sale_ids] == [[1], [1]]


def test_queue_of_a_dead_process_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    step = STEPS["v5"]
    sale_id = step.open(1)
    assert buy("v5", sale_id, 1) is Answer.QUEUED
    restart_process(monkeypatch)
    assert not writer_of(step).work_once()
    assert step.rows(sale_id) == []
    assert buy("v5", sale_id, 2) is Answer.SOLD_OUT


def test_order_taken_by_a_dead_writer_is_lost() -> None:
    step = STEPS["v5"]
    sale_id = step.open(1)
    buy("v5", sale_id, 1)
    with at("taken from the queue", die), pytest.raises(Died):
        writer_of(step).work_once()
    assert not writer_of(step).work_once()
    assert step.rows(sale_id) == []


def test_failed_order_is_logged_and_the_next_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = STEPS["v5"]
    sale_id, writer = step.open(2), writer_of(step)
    for user_id in (1, 2):
        buy("v5", sale_id, user_id)

    def fail() -> None:
        raise OperationalError(2013, "gone")

    with at("unit taken", fail):
        assert writer.work_once()
    assert writer.work_once()
    assert step.rows(sale_id) == [2]
    assert "the order of 1 is not written" in caplog.text
