"""The time of Redis as a process knows it, and the time of the database."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import time_machine
from django.db import connection

from seckill_site.clocks import ledger as ledger_time
from seckill_site.clocks.database import database_now
from seckill_site.clocks.ledger import ledger_now_ms, refresh_ledger_time
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.sales import make_sale, redis_now_ms
from vouchers.lock_objects import lock_seckill_voucher

SLACK_MS = 60_000
HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Let each test begin as a process that has asked nobody yet."""
    ledger_time._clock.forget()
    yield
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(1)


def is_right(now_ms: int) -> bool:
    return abs(now_ms - redis_now_ms()) < SLACK_MS


@pytest.mark.slow
def test_clock_of_this_machine_does_not_count() -> None:
    with time_machine.travel(dt.datetime.now(dt.UTC) + HOUR):
        assert is_right(ledger_now_ms())
        assert is_right(ledger_now_ms()), "the second answer, without Redis"


@pytest.mark.slow
def test_first_calls_wait_for_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a burst after the start is judged by the clock of this machine."""
    asked, go_on, found = threading.Event(), threading.Event(), list[int]()

    def slow_refresh() -> None:
        asked.set()
        go_on.wait(GENEROUS_S)
        refresh_ledger_time()

    monkeypatch.setattr(ledger_time, "refresh_ledger_time", slow_refresh)
    with time_machine.travel(dt.datetime.now(dt.UTC) + HOUR):
        threads = [threading.Thread(target=lambda: found.append(ledger_now_ms())) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert asked.wait(GENEROUS_S)
        go_on.set()
        for thread in threads:
            thread.join(GENEROUS_S)
    assert len(found) == 8
    assert all(map(is_right, found))


@pytest.mark.slow
def test_old_answer_is_replaced_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slow_refresh() -> None:
        go_on.wait(GENEROUS_S)
        refresh_ledger_time()

    ledger_time._clock.learn(ledger_time._Reading(0, 0.0), for_s=0)
    monkeypatch.setattr(ledger_time, "refresh_ledger_time", slow_refresh)
    assert not is_right(ledger_now_ms()), "nobody waits for the new answer"
    go_on.set()
    wait_for(lambda: is_right(ledger_now_ms()), what="a new answer")


@pytest.mark.slow
def test_without_redis_the_clock_of_this_machine_has_to_do(
    redis_gone: Callable[[], AbstractContextManager[None]],
) -> None:
    with redis_gone():
        assert is_right_enough(ledger_now_ms())


def is_right_enough(now_ms: int) -> bool:
    return abs(now_ms - dt.datetime.now(dt.UTC).timestamp() * 1000) < SLACK_MS


@pytest.mark.slow
@pytest.mark.django_db
def test_time_of_the_database_is_in_utc_whatever_the_session_says() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET time_zone = '+08:00'")
        try:
            sale = lock_seckill_voucher(sale_id=make_sale().pk)
            for found in (database_now(), sale.locked_at):
                assert abs(found - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)
        finally:
            if connection.vendor == "mysql":
                cursor.execute("SET time_zone = DEFAULT")
