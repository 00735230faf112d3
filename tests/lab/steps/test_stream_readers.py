"""Readers of the stream: a poisoned entry, one name, slips of the pen, and a missed lock."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from lab.keys import LabKeys
from lab.locks import OwnedLock
from lab.steps import STEPS
from lab.steps.step import Answer
from lab.steps.stream_readers import POISONED
from lab.steps.v5_stream import GROUP
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import at, buy, elsewhere, passed, writer_of
from tests.support.patience import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def queued(step: str) -> int:
    """Open a sale of two units with an order in the stream; return the sale."""
    sale_id = STEPS[step].open(2)
    assert buy(step, sale_id, 1) is Answer.QUEUED
    return sale_id


def pending(sale_id: int) -> int:
    return int(ledger_connection().xpending(LabKeys(sale_id).stream, GROUP)["pending"])


def write_once(step: str, process_name: str = "p1") -> bool:
    """Let a new reader, as after a restart, look for one order."""
    return writer_of(STEPS[step], process_name).work_once()


# --- The poisoned entry ---------------------------------------------------------------------------


def test_reader_loops_on_an_entry_it_cannot_write(caplog: pytest.LogCaptureFixture) -> None:
    sale_id = queued("v5-poisoned")
    reader = writer_of(STEPS["v5-poisoned"])
    assert [reader.work_once() for _ in range(POISONED + 2)] == [False] * (POISONED + 2)
    assert STEPS["v5-poisoned"].rows(sale_id) == []
    assert pending(sale_id) == 1
    assert caplog.text.count("KeyError('user_id')") == POISONED + 2


def test_entry_set_aside_holds_nobody_up() -> None:
    sale_id = queued("v5-aside")
    reader = writer_of(STEPS["v5-aside"])
    assert [reader.work_once() for _ in range(POISONED + 2)] == [True] * (POISONED + 1) + [False]
    assert STEPS["v5-aside"].rows(sale_id) == [1]
    assert pending(sale_id) == 0
    assert ledger_connection().xlen(f"{LabKeys(sale_id).stream}:aside") == POISONED


# --- One name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "rows"), [("v5-one-name", [1, 1]), ("v5-stream", [1])])
def test_second_reader_of_one_name_writes_the_same_order(step: str, rows: list[int]) -> None:
    sale_id = queued(step)
    with at("orders counted", lambda: elsewhere(lambda: write_once(step, "p2"))):
        assert write_once(step)
    assert STEPS[step].rows(sale_id) == rows


# --- Slips of the pen -----------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "rows"), [("v5-new-only", []), ("v5-one-name", [1])])
def test_pending_order_is_seen_only_by_reading_from_0(step: str, rows: list[int]) -> None:
    sale_id = queued(step)
    with at("unit taken", fail):
        assert not write_once(step)
    for _ in range(2):
        write_once(step)
    assert STEPS[step].rows(sale_id) == rows
    assert pending(sale_id) == 1 - len(rows)


@pytest.mark.parametrize(("step", "rows"), [("v5-returning", []), ("v5-stream", [1])])
def test_reader_whose_loop_returned_reads_nothing(step: str, rows: list[int]) -> None:
    reader, sale_id = writer_of(STEPS[step]), STEPS[step].open(1)
    assert not reader.work_once()
    assert buy(step, sale_id, 1) is Answer.QUEUED
    assert [reader.work_once() for _ in range(2)] == [bool(rows), False]
    assert STEPS[step].rows(sale_id) == rows
    assert write_once(step, "p2") is not bool(rows)  # another process, if it starts late enough


def fail() -> None:
    raise OperationalError(2013, "gone")


# --- The lock that is missed ----------------------------------------------------------------------


def test_points_follow_the_statements() -> None:
    sale_id = queued("v6-dropped")
    assert passed(lambda: write_once("v6-dropped")) == [
        *("read", "lock held", "orders counted", "unit taken", "order written", "committed"),
        *("lock released", "acknowledged"),
    ]
    assert pending(sale_id) == 0


def test_order_is_acknowledged_though_the_lock_is_missed() -> None:
    sale_id = queued("v6-dropped")
    assert OwnedLock(LabKeys(sale_id).lock_of(1)).take()
    assert write_once("v6-dropped")
    wait_for(lambda: not ledger_connection().exists(LabKeys(sale_id).lock_of(1)))
    assert not write_once("v6-dropped")
    assert STEPS["v6-dropped"].rows(sale_id) == []
    assert pending(sale_id) == 0
    assert buy("v6-dropped", sale_id, 1) is Answer.ALREADY_ORDERED


def test_order_waits_for_the_lock_in_the_pending_list() -> None:
    sale_id = queued("v6-kept")
    assert OwnedLock(LabKeys(sale_id).lock_of(1)).take()
    assert write_once("v6-kept")  # there is something left to do
    assert (STEPS["v6-kept"].rows(sale_id), pending(sale_id)) == ([], 1)
    wait_for(lambda: write_once("v6-kept") and not pending(sale_id))
    assert STEPS["v6-kept"].rows(sale_id) == [1]
