"""The last step as taught: what its consumers drop, and a reader that drops nothing."""

from __future__ import annotations

import pytest

from lab.locks import WatchdogLock
from lab.steps import STEPS, v6
from lab.steps.step import Answer
from tests.lab.steps.meeting import at, buy, elsewhere, passed, writer_of

pytestmark = pytest.mark.django_db(transaction=True)

DROPPING, ALL = ["v6-queue", "v6-stream"], ["v6-queue", "v6-stream", "v6-renewed"]


def queued(step: str) -> int:
    """Open a sale of two units with an order in the queue; return the sale."""
    sale_id = STEPS[step].open(2)
    assert buy(step, sale_id, 1) is Answer.QUEUED
    return sale_id


@pytest.mark.parametrize("step", ALL)
def test_lock_is_around_the_work_of_the_consumer(step: str) -> None:
    sale_id = queued(step)
    points = passed(writer_of(STEPS[step]).work_once)
    first = "taken from the queue" if step == "v6-queue" else "read"
    assert points[:2] == [first, "lock held"]
    assert points[4:7] == ["order written", "committed", "lock released"]
    assert STEPS[step].rows(sale_id) == [1]


@pytest.mark.parametrize("step", DROPPING)
def test_order_of_a_buyer_with_a_taken_lock_is_dropped(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    sale_id = queued(step)
    lock = WatchdogLock(v6.of_buyer(sale_id, 1))
    assert lock.take()
    assert writer_of(STEPS[step]).work_once()
    lock.release()
    assert "user 1 may not order twice" in caplog.text
    assert not writer_of(STEPS[step]).work_once()
    assert STEPS[step].rows(sale_id) == []
    assert buy(step, sale_id, 1) is Answer.ALREADY_ORDERED


def test_order_of_a_taken_lock_waits_where_nothing_is_dropped() -> None:
    sale_id = queued("v6-renewed")
    lock = WatchdogLock(v6.of_buyer_and_sale(sale_id, 1))
    assert lock.take()
    assert writer_of(STEPS["v6-renewed"]).work_once()
    lock.release()
    assert STEPS["v6-renewed"].rows(sale_id) == []
    assert writer_of(STEPS["v6-renewed"]).work_once()
    assert STEPS["v6-renewed"].rows(sale_id) == [1]


@pytest.mark.parametrize(("step", "rows"), [("v6-stream", []), ("v6-renewed", [1])])
def test_second_voucher_of_a_buyer_is_written_beside_the_first(step: str, rows: list[int]) -> None:
    """Two processes read as one name: the second finds what the first writes, then the new one."""
    first_id, second_id = queued(step), STEPS[step].open(1)

    def press_and_write_elsewhere() -> None:
        buy(step, second_id, 1)
        for _ in range(2):
            elsewhere(lambda: writer_of(STEPS[step], "p2").work_once())

    with at("orders counted", press_and_write_elsewhere):
        assert writer_of(STEPS[step]).work_once()
    writer_of(STEPS[step]).work_once()
    assert (STEPS[step].rows(first_id), STEPS[step].rows(second_id)) == ([1], rows)
