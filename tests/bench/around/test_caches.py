"""Caches: what reaches the database in a crowd, and what each cure keeps away from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event
from typing import Any

import pytest

from bench.around.caches import (
    KEY,
    KNOWN,
    Load,
    cache,
    known_ids,
    logical_expiry,
    mutex,
    read_in_a_crowd,
)
from lab.keys import delete_keys
from lab.models import LabOrder, LabSale
from seckill_site.redis.ledger_connection import ledger_connection

CROWD = 4
SALE, MISSING = 7, 8


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    delete_keys(f"{KEY}*")
    yield
    delete_keys(f"{KEY}*")


class Database:
    """Counts what it is asked; ``meanwhile`` runs within each load."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.asked: list[int] = []
        self._meanwhile = meanwhile

    def load(self, sale_id: int) -> str:
        self.asked.append(sale_id)
        self._meanwhile()
        return "1 0" if sale_id == SALE else ""


def read_together(read: Callable[[int, Load], str], database: Database) -> list[str]:
    with ThreadPoolExecutor(CROWD) as pool:
        return list(pool.map(lambda _: read(SALE, database.load), range(CROWD)))


@pytest.mark.parametrize(
    ("read", "queries"), [(cache, 3), (partial(cache, keeps_missing=True), 1), (known_ids, 0)]
)
def test_missing_sale_reaches_the_database(read: Callable[[int, Load], str], queries: int) -> None:
    database = Database()
    assert [read(MISSING, database.load) for _ in range(3)] == ["", "", ""]
    assert len(database.asked) == queries


def test_known_sale_is_let_through() -> None:
    ledger_connection().sadd(KNOWN, SALE)
    assert known_ids(SALE, Database().load) == "1 0"


def test_expired_key_lets_the_whole_crowd_through() -> None:
    together = Barrier(CROWD)
    database = Database(lambda: together.wait(timeout=30))
    assert read_together(cache, database) == ["1 0"] * CROWD
    assert len(database.asked) == CROWD


def test_mutex_lets_one_through() -> None:
    database = Database()
    assert read_together(mutex, database) == ["1 0"] * CROWD
    assert len(database.asked) == 1


def test_logical_expiry_serves_the_old_value_during_a_load() -> None:
    ledger_connection().set(f"{KEY}{SALE}", "1:old")
    loading, answered = Event(), Event()

    def stay() -> None:
        loading.set()
        assert answered.wait(timeout=30)

    database = Database(stay)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(logical_expiry, SALE, database.load)
        assert loading.wait(timeout=30)
        assert logical_expiry(SALE, database.load) == "old"
        answered.set()
        assert first.result() == "1 0"
    assert logical_expiry(SALE, database.load) == "1 0"
    assert len(database.asked) == 1


def test_jitter_gives_keys_different_lives() -> None:
    def lives(jitter: float) -> list[int]:
        for sale_id in range(50):
            cache(sale_id, lambda _: "found", jitter=jitter)
        return [ledger_connection().pexpiretime(f"{KEY}{it}") for it in range(50)]

    with_jitter = lives(0.5)
    delete_keys(f"{KEY}*")
    without = lives(0)
    assert max(with_jitter) - min(with_jitter) > max(without) - min(without)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_crowd_reads_in_each_way_and_nothing_is_left() -> None:
    found: Any = read_in_a_crowd(5, 100, for_s=0.2)
    rows = {(what, how): figures for what, how, *figures in found}
    assert len(rows) == 12
    for (_, how), (reads, queries, *_) in rows.items():
        assert reads >= queries or how == "no cache"
    assert rows["made-up ids, ever new", "a set of the known ids"][1] == 0
    assert not LabSale.objects.exists()
    assert not LabOrder.objects.exists()
    assert not list(ledger_connection().scan_iter(f"{KEY}*"))
