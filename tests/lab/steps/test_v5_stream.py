"""V5 with a stream: what outlives a process, and what stays in a dead reader's list."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from redis import Redis

from lab.answers import Answer
from lab.keys import LabKeys
from lab.steps import STEPS
from lab.steps.step import Writer
from lab.steps.v5_stream import GROUP
from seckill_site.ledger_connection import ledger_connection
from tests.lab.steps.meeting import Died, at, buy, die, passed, wait_for, writer_of

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


def test_the_points_are_passed_in_the_order_of_the_statements() -> None:
    sale_id = STEP.open(1)
    assert passed(lambda: buy(STEP.name, sale_id, 1)) == ["decided"]
    assert passed(reader("p1").work_once) == [
        "read",
        *("orders counted", "unit taken", "order written"),
        *("committed", "acknowledged"),
    ]
    assert pending(sale_id) == {}


def test_what_was_decided_is_queued_although_its_process_dies_at_once() -> None:
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


def test_a_reader_without_an_order_says_so_and_finds_a_sale_that_is_opened_later() -> None:
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


def test_what_a_dead_reader_has_read_nobody_else_writes() -> None:
    sale_id = died_at("read", stock=1)
    assert not reader("p2").work_once()
    assert pending(sale_id) == {"p1": 1}
    assert STEP.rows(sale_id) == []
    assert buy(STEP.name, sale_id, 2) is Answer.SOLD_OUT


def test_a_reader_of_the_same_name_writes_it_before_anything_new() -> None:
    sale_id = died_at("read")
    buy(STEP.name, sale_id, 2)
    writer = reader("p1")
    assert [writer.work_once() for _ in range(3)] == [True, True, False]
    assert STEP.rows(sale_id) == [1, 2]
    assert pending(sale_id) == {}


def test_what_was_committed_and_not_acknowledged_is_not_written_twice() -> None:
    sale_id = died_at("committed")
    assert pending(sale_id) == {"p1": 1}
    assert reader("p1").work_once()
    assert STEP.rows(sale_id) == [1]
    assert pending(sale_id) == {}


def test_an_order_that_fails_is_tried_again() -> None:
    sale_id, writer = STEP.open(1), reader("p1")
    buy(STEP.name, sale_id, 1)

    def fail() -> None:
        raise OperationalError(2013, "gone")

    with at("unit taken", fail):
        assert not writer.work_once()
    assert writer.work_once()
    assert STEP.rows(sale_id) == [1]


def test_where_redis_comes_back_empty_its_promises_are_lost(redis_databases: list[Redis]) -> None:
    sale_id, writer = STEP.open(5), reader("p1")
    buy(STEP.name, sale_id, 1)
    assert writer.work_once()
    buy(STEP.name, sale_id, 2)
    redis_databases[0].flushdb()
    assert [writer.work_once() for _ in range(3)] == [False] * 3
    assert STEP.rows(sale_id) == [1]
    assert buy(STEP.name, sale_id, 3) is Answer.SOLD_OUT


def test_a_sale_whose_stream_is_lost_keeps_nobody_from_another_sale() -> None:
    lost_id, writer = STEP.open(1), reader("p1")
    assert not writer.work_once()
    ledger_connection().delete(LabKeys(lost_id).stream)
    sale_id = STEP.open(1)
    buy(STEP.name, sale_id, 1)
    wait_for(writer.work_once)
    assert STEP.rows(sale_id) == [1]
