"""V5 with a stream: what outlives a process, and what stays in a dead reader's list."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from redis import Redis

from lab.keys import LabKeys
from lab.steps import STEPS
from lab.steps.step import Answer, Writer
from lab.steps.v5_stream import GROUP
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import Died, at, buy, die, passed, writer_of
from tests.support.patience import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

STEP = STEPS["v5-stream"]


def reader(process_name: str) -> Writer:
    return writer_of(STEP, process_name)


def pending(sale_id: int) -> dict[str, int]:
    """Return how many orders each reader has read and not acknowledged."""
    found = ledger_connection().xpending(LabKeys(sale_id).stream, GROUP)
    return {it["name"]: it["pending"] for it in found["consumers"]}


def died_at(point: str, *, stock: int = 5) -> int:
    """Let reader p1 die over the only order; return the sale."""
    sale_id = STEP.open(stock)
    buy(STEP.name, sale_id, 1)
    with at(point, die), pytest.raises(Died):
        reader("p1").work_once()
    return sale_id


def test_points_follow_the_statements() -> None:
    sale_id = STEP.open(1)
    assert passed(lambda: buy(STEP.name, sale_id, 1)) == ["decided"]
    assert passed(reader("p1").work_once) == [
        "read",
        *("orders counted", "unit taken", "order written"),
        *("committed", "acknowledged"),
    ]
    assert pending(sale_id) == {}


def test_decided_order_survives_its_process() -> None:
    sale_id = STEP.open(1)
    with at("decided", die), pytest.raises(Died):
        buy(STEP.name, sale_id, 1)
    assert reader("p2").work_once()
    assert STEP.rows(sale_id) == [1]


def test_two_readers_share_the_orders() -> None:
    sale_id = STEP.open(2)
    for user_id in (1, 2):
        assert buy(STEP.name, sale_id, user_id) is Answer.QUEUED
    assert [reader(name).work_once() for name in ("p1", "p2")] == [True, True]
    assert STEP.rows(sale_id) == [1, 2]


def test_idle_reader_finds_sales_opened_later() -> None:
    writer = reader("p1")
    assert not writer.work_once()
    sale_id = STEP.open(1)
    assert not writer.work_once()
    buy(STEP.name, sale_id, 1)
    assert writer.work_once()
    another_id = STEP.open(1)
    buy(STEP.name, another_id, 1)
    wait_for(writer.work_once)
    assert STEP.rows(another_id) == [1]


def test_orders_of_a_dead_reader_are_not_written() -> None:
    sale_id = died_at("read", stock=1)
    assert not reader("p2").work_once()
    assert pending(sale_id) == {"p1": 1}
    assert STEP.rows(sale_id) == []
    assert buy(STEP.name, sale_id, 2) is Answer.SOLD_OUT


def test_reader_of_the_same_name_writes_pending_orders_first() -> None:
    sale_id = died_at("read")
    buy(STEP.name, sale_id, 2)
    writer = reader("p1")
    assert [writer.work_once() for _ in range(3)] == [True, True, False]
    assert STEP.rows(sale_id) == [1, 2]
    assert pending(sale_id) == {}


def test_unacknowledged_commit_is_not_written_twice() -> None:
    sale_id = died_at("committed")
    assert pending(sale_id) == {"p1": 1}
    assert reader("p1").work_once()
    assert STEP.rows(sale_id) == [1]
    assert pending(sale_id) == {}


def test_failed_order_is_retried() -> None:
    sale_id, writer = STEP.open(1), reader("p1")
    buy(STEP.name, sale_id, 1)

    def fail() -> None:
        raise OperationalError(2013, "gone")

    with at("unit taken", fail):
        assert not writer.work_once()
    assert writer.work_once()
    assert STEP.rows(sale_id) == [1]


def test_empty_redis_loses_promises(redis_databases: list[Redis]) -> None:
    sale_id, writer = STEP.open(5), reader("p1")
    buy(STEP.name, sale_id, 1)
    assert writer.work_once()
    buy(STEP.name, sale_id, 2)
    redis_databases[0].flushdb()
    assert [writer.work_once() for _ in range(3)] == [False] * 3
    assert STEP.rows(sale_id) == [1]
    assert buy(STEP.name, sale_id, 3) is Answer.SOLD_OUT


def test_lost_stream_does_not_block_other_sales() -> None:
    lost_id, writer = STEP.open(1), reader("p1")
    assert not writer.work_once()
    ledger_connection().delete(LabKeys(lost_id).stream)
    sale_id = STEP.open(1)
    buy(STEP.name, sale_id, 1)
    wait_for(writer.work_once)
    assert STEP.rows(sale_id) == [1]
