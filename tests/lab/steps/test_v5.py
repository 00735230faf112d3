"""V5: a promise that only a process remembers."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, Full

import pytest
from django.db import OperationalError

from lab.keys import LabKeys
from lab.steps import STEPS, v5
from lab.steps.step import Answer
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import Died, at, buy, die, passed, write_all, writer_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    restart_process()


def restart_process() -> None:
    """Forget what a process that dies forgets."""
    for queue in (v5.boundless, v5.bounded):
        with suppress(Empty):
            while True:
                queue.get_nowait()


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


def test_queue_of_a_dead_process_is_lost() -> None:
    step = STEPS["v5"]
    sale_id = step.open(1)
    assert buy("v5", sale_id, 1) is Answer.QUEUED
    restart_process()
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


def test_failed_order_is_logged_and_the_next_is_written(caplog: pytest.LogCaptureFixture) -> None:
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


# --- The bounded queue ----------------------------------------------------------------------------


def filled(step: str) -> int:
    """Open a sale and let buyers fill the queue of this process; return the sale."""
    sale_id = STEPS[step].open(10)
    for number in range(v5.BOUND):
        assert buy(step, sale_id, number) is Answer.QUEUED
    return sale_id


@pytest.mark.parametrize("step", ["v5-add", "v5-offer", "v5-put"])
def test_orders_within_the_bound_are_written(step: str) -> None:
    sale_id = filled(step)
    write_all(STEPS[step], sale_id, until=v5.BOUND)


def test_add_raises_after_the_unit_is_taken() -> None:
    sale_id = filled("v5-add")
    with pytest.raises(Full):
        buy("v5-add", sale_id, 7)
    assert buy("v5-add", sale_id, 7) is Answer.ALREADY_ORDERED
    assert ledger_connection().get(LabKeys(sale_id).stock) == str(10 - v5.BOUND - 1)
    write_all(STEPS["v5-add"], sale_id, until=v5.BOUND)
    assert not writer_of(STEPS["v5-add"]).work_once()


def test_unbounded_queue_takes_them_all() -> None:
    sale_id = STEPS["v5"].open(10)
    for number in range(v5.BOUND + 3):
        assert buy("v5", sale_id, number) is Answer.QUEUED
    write_all(STEPS["v5"], sale_id, until=v5.BOUND + 3)
