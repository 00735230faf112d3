"""Sorted sets: a leaderboard, and who loses or doubles unpaid orders."""

from __future__ import annotations

import time
from functools import partial
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from bench.around import sorted_sets
from bench.around.sorted_sets import BOARD, DUE, TABLE, WAYS, expire, lead, pop
from lab.models import LabOrder, LabSale
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.orders import at_once
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.django_db(transaction=True)


def test_leaderboard_is_measured_and_removed() -> None:
    rows: list[Any] = list(lead(sales=20, orders=300))
    assert [row[-1] > 0 for row in rows] == [False, False, True]
    assert all(figure is None or figure > 0 for row in rows for figure in row[1:4])
    assert not LabSale.objects.exists()
    assert not LabOrder.objects.exists()
    assert not ledger_connection().exists(BOARD)


@pytest.mark.slow
def test_only_rows_lose_no_order() -> None:
    found: Any = expire(orders=40, for_s=0.3)
    rows = {name: figures for name, *figures in found}
    assert list(rows) == [way.name for way in WAYS]
    assert {name: figures[-2:] for name, figures in rows.items()} == {
        "rows, polled every 2 s": [0, 0],
        "rows, polled every 0.1 s": [0, 0],
        "sorted set, no script": [10, 10],
        "sorted set, script": [10, 10],
        "sorted set, script with lease": [0, 10],
    }
    assert all(figures[-3] == 0 for name, figures in rows.items() if "no script" not in name)
    assert TABLE not in connection.introspection.table_names()
    assert not ledger_connection().exists(DUE)


def test_without_script_two_workers_take_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    client, both = ledger_connection(), Barrier(2)

    class Slow:
        def zrange(self, *args: object, **kwargs: object) -> object:
            found = client.zrange(*args, **kwargs)
            both.wait(timeout=GENEROUS_S)
            return found

        def zrem(self, *args: object) -> None:
            client.zrem(*args)

    client.zadd(DUE, {"1": 1})
    now_ms = int(1_000 * time.time())
    with monkeypatch.context() as patched:
        patched.setattr(sorted_sets, "ledger_connection", Slow)
        assert at_once(*[partial(sorted_sets.pop_without_script, now_ms)] * 2) == [[1], [1]]
    client.zadd(DUE, {"1": 1})
    assert sorted(at_once(*[partial(pop, now_ms)] * 2)) == [[], [1]]
