"""Sorted sets in Redis beside SQL: a leaderboard, and a delay queue for unpaid orders."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, F
from django.utils.translation import gettext_noop

from bench.around.measuring import in_threads, median_ms, sql
from lab.experiments.experiment import Cell, Row
from lab.models import LabOrder, LabSale
from locks.lua_script import LuaScript
from seckill_site.redis.ledger_connection import ledger_connection

BOARD, DUE, TABLE = "lab:board", "lab:due", "lab_unpaid"
TOP = 10
WORKERS = 2
AT_ONCE = 500
LEASE_MS = 60_000
TAKE_DUE = LuaScript(Path(__file__).with_name("take_due.lua"))


def lead(sales: int = 1_000, orders: int = 100_000) -> Iterator[Row]:
    """Count an order, read the sales that sold most, and find the rank of one, each way."""
    client, by_stock = ledger_connection(), LabSale.objects.filter(step="board")
    LabSale.objects.bulk_create(
        LabSale(step="board", offered=orders, stock=orders) for _ in range(sales)
    )
    first = by_stock.earliest("pk").pk
    by_orders = LabOrder.objects.filter(sale__step="board").values("sale").annotate(n=Count("pk"))
    try:
        sql(
            "INSERT INTO lab_laborder (sale_id, user_id)"
            f" SELECT %s + FLOOR(%s * POW(RAND(), 3)), seq FROM seq_1_to_{orders}", first, sales,
        )  # fmt: skip
        sold = dict(by_orders.values_list("sale", "n"))
        counts = "SELECT COUNT(*) FROM lab_laborder WHERE sale_id = lab_labsale.id"
        sql(f"UPDATE lab_labsale SET stock = offered - ({counts}) WHERE step = 'board'")
        client.zadd(BOARD, sold)
        yield (
            gettext_noop("group the orders"),
            None,
            median_ms(lambda: list(by_orders.order_by("-n")[:TOP])),
            median_ms(lambda: by_orders.filter(n__gt=sold[first]).count()),
            0,
        )
        yield (
            gettext_noop("sort the sales by their counter"),
            median_ms(lambda: by_stock.filter(pk=first).update(stock=F("stock") - 1)),
            median_ms(lambda: list(by_stock.order_by("stock")[:TOP])),
            median_ms(lambda: by_stock.filter(stock__lt=orders - sold[first]).count()),
            0,
        )
        figures = (
            median_ms(lambda: client.zincrby(BOARD, 1, first)),
            median_ms(lambda: client.zrevrange(BOARD, 0, TOP - 1, withscores=True)),
            median_ms(lambda: client.zrevrank(BOARD, first)),
        )
        client.delete(BOARD)  # Redis comes back empty
        yield gettext_noop("sorted set"), *figures, len(sold) - client.zcard(BOARD)
    finally:
        client.delete(BOARD)
        LabOrder.objects.filter(sale__step="board").delete()
        by_stock.delete()


def poll_rows(now_ms: int) -> list[int]:
    due = sql(
        f"SELECT id FROM {TABLE} WHERE status = 0 AND due_ms <= %s"
        f" ORDER BY due_ms LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED", now_ms,
    )  # fmt: skip
    return [it for (it,) in due]


def pop_without_script(now_ms: int) -> list[int]:
    due = ledger_connection().zrange(DUE, "-inf", now_ms, byscore=True, offset=0, num=AT_ONCE)
    if due:
        ledger_connection().zrem(DUE, *due)
    return [*map(int, due)]


def pop(now_ms: int, lease_ms: int = 0) -> list[int]:
    args = [now_ms, AT_ONCE, lease_ms]
    return [*map(int, TAKE_DUE.run(ledger_connection(), keys=[DUE], args=args))]


class Way(NamedTuple):
    """``take`` returns orders that are due; it runs in the transaction that ends them."""

    name: str
    take: Callable[[int], list[int]]
    every_s: float = 0.1


WAYS = (
    Way(gettext_noop("rows, polled every 2 s"), poll_rows, 2.0),
    Way(gettext_noop("rows, polled every 0.1 s"), poll_rows),
    Way(gettext_noop("sorted set, no script"), pop_without_script),
    Way(gettext_noop("sorted set, script"), pop),
    Way(gettext_noop("sorted set, script with lease"), partial(pop, lease_ms=LEASE_MS)),
)


class WorkerDied(Exception):
    """A worker died with orders taken that it had not ended."""


def end_due(way: Way, now_ms: int, *, dies: bool = False) -> list[int]:
    """End the orders that are due; return those that this worker took for due."""
    with transaction.atomic() if way.take is poll_rows else nullcontext():
        if not (ids := way.take(now_ms)):
            return ids
        if dies:
            raise WorkerDied
        sql(f"UPDATE {TABLE} SET status = 1 WHERE id IN %s AND status = 0", ids)
    ledger_connection().zrem(DUE, *ids)
    return ids


def expire(orders: int = 1_000, for_s: float = 4.0) -> Iterator[Row]:
    """Let orders fall due for some seconds, and two workers look for them; then harm a few."""
    try:
        for way in WAYS:
            faults = _lost(way, dies=True), _lost(way, dies=False)
            yield way.name, *_race(way, orders, for_s), *faults
    finally:
        ledger_connection().delete(DUE)
        sql(f"DROP TABLE IF EXISTS {TABLE}")


def _race(way: Way, orders: int, for_s: float) -> tuple[Cell, ...]:
    """Return how late orders end, the looks a second, the time of an empty one, and doubles."""
    start = time.time()
    due_s = {it: start + for_s * it / orders for it in range(1, orders + 1)}
    _await_payment(due_s)
    late_ms: dict[int, float] = {}
    taken: list[int] = []

    def look() -> None:
        look_at = start
        while len(late_ms) < orders:
            time.sleep(max(0.0, look_at - time.time()))
            ids = end_due(way, int(1_000 * time.time()))
            taken.extend(ids)
            late_ms.update({it: 1_000 * (time.time() - due_s[it]) for it in ids})
            look_at += way.every_s

    in_threads(WORKERS, look)
    median, p99 = quantiles(late_ms.values(), n=100)[49::49]
    empty_look_ms = median_ms(lambda: end_due(way, int(1_000 * start)))
    return median, p99, WORKERS / way.every_s, empty_look_ms, len(taken) - len(late_ms)


def _lost(way: Way, *, dies: bool, orders: int = 10) -> int:
    """Return the orders that never end after a worker died, or else after Redis came back empty."""
    now_ms = int(1_000 * time.time())
    _await_payment(dict.fromkeys(range(1, orders + 1), now_ms / 1_000))
    if dies:
        with suppress(WorkerDied):
            end_due(way, now_ms, dies=True)
    else:
        ledger_connection().delete(DUE)
    end_due(way, now_ms + LEASE_MS)
    return int(sql(f"SELECT COUNT(*) FROM {TABLE} WHERE status = 0")[0][0])


def _await_payment(due_s: dict[int, float]) -> None:
    """Write unpaid orders, as rows and into the sorted set."""
    due_ms = {it: int(1_000 * at) for it, at in due_s.items()}
    sql(f"DROP TABLE IF EXISTS {TABLE}")
    columns = "id INT PRIMARY KEY, due_ms BIGINT, status TINYINT, KEY (status, due_ms)"
    sql(f"CREATE TABLE {TABLE} ({columns}) ENGINE=InnoDB")
    rows = ", ".join(f"({it}, {at}, 0)" for it, at in due_ms.items())
    sql(f"INSERT INTO {TABLE} VALUES {rows}")
    ledger_connection().delete(DUE)
    ledger_connection().zadd(DUE, due_ms)
