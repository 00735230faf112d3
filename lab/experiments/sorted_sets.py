"""Sorted sets in Redis beside SQL: a leaderboard, and a delay queue for unpaid orders."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Count, F
from django.utils.translation import gettext_lazy, gettext_noop

from lab.experiments.experiment import Cell, Experiment, Row
from lab.models import LabOrder, LabSale
from locks.lua_script import LuaScript
from seckill_site.ledger_connection import ledger_connection

BOARD, DUE = "lab:board", "lab:due"
TOP = 10
WORKERS = 2
AT_ONCE = 500
LEASE_MS = 60_000
TABLE = "lab_unpaid"
TAKE_DUE = LuaScript(Path(__file__).parents[1] / "lua" / "take_due.lua")


# --- A leaderboard of the sales that sell most ----------------------------------------------------


def lead(sales: int = 1_000, orders: int = 100_000, times: int = 50) -> Iterator[Row]:
    """Count an order, read the top ten and find the rank of one sale, each way."""
    client, board = ledger_connection(), LabSale.objects.filter(step="board")
    new = (LabSale(step="board", offered=orders, stock=orders) for _ in range(sales))
    made = LabSale.objects.bulk_create(new)
    sold = [0] * sales
    for _ in range(orders):
        sold[int(sales * random.betavariate(1, 4))] += 1
    one, place = made[sales // 2], sales // 2
    try:
        for sale, count in zip(made, sold, strict=True):
            sale.stock -= count
        LabSale.objects.bulk_update(made, ["stock"])
        bought = (
            LabOrder(sale=it, user_id=0) for it, n in zip(made, sold, strict=True) for _ in range(n)
        )
        LabOrder.objects.bulk_create(bought, batch_size=5_000)
        client.zadd(BOARD, {it.pk: n for it, n in zip(made, sold, strict=True)})
        counts = LabOrder.objects.filter(sale__step="board").values("sale").annotate(n=Count("pk"))
        yield (
            gettext_noop("group the orders"),
            None,
            _ms(lambda: list(counts.order_by("-n")[:TOP]), times),
            _ms(lambda: counts.filter(n__gt=sold[place]).count(), times),
            0,
        )
        yield (
            gettext_noop("sort the sales by their counter"),
            _ms(lambda: board.filter(pk=one.pk).update(stock=F("stock") - 1), times),
            _ms(lambda: list(board.order_by("stock")[:TOP]), times),
            _ms(lambda: board.filter(stock__lt=one.stock).count(), times),
            0,
        )
        row = (
            _ms(lambda: client.zincrby(BOARD, 1, one.pk), times),
            _ms(lambda: client.zrevrange(BOARD, 0, TOP - 1, withscores=True), times),
            _ms(lambda: client.zrevrank(BOARD, one.pk), times),
        )
        client.delete(BOARD)  # Redis comes back empty
        yield gettext_noop("sorted set"), *row, sales - client.zcard(BOARD)
    finally:
        client.delete(BOARD)
        LabOrder.objects.filter(sale__step="board").delete()
        board.delete()


def _ms(call: Callable[[], object], times: int) -> float:
    took_s = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        took_s.append(time.perf_counter() - start)
    return 1_000 * median(took_s)


# --- A delay queue for unpaid orders --------------------------------------------------------------


def poll_rows(now_ms: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id FROM {TABLE} WHERE status = 0 AND due_ms <= %s"
            f" ORDER BY due_ms LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED", [now_ms],
        )  # fmt: skip
        return [it for (it,) in cursor.fetchall()]


def pop_without_script(now_ms: int) -> list[int]:
    found = ledger_connection().zrange(DUE, "-inf", now_ms, byscore=True, offset=0, num=AT_ONCE)
    if found:
        ledger_connection().zrem(DUE, *found)
    return [*map(int, found)]


def pop(now_ms: int, lease_ms: int = 0) -> list[int]:
    args = [now_ms, AT_ONCE, lease_ms]
    return [*map(int, TAKE_DUE.run(ledger_connection(), keys=[DUE], args=args))]


class Way(NamedTuple):
    """``take`` returns orders that are due; it runs in the transaction that ends them."""

    name: str
    take: Callable[[int], list[int]]
    every_s: float


WAYS = (
    Way(gettext_noop("rows, polled every 2 s"), poll_rows, 2.0),
    Way(gettext_noop("rows, polled every 0.1 s"), poll_rows, 0.1),
    Way(gettext_noop("sorted set, no script"), pop_without_script, 0.1),
    Way(gettext_noop("sorted set, script"), pop, 0.1),
    Way(gettext_noop("sorted set, script with lease"), partial(pop, lease_ms=LEASE_MS), 0.1),
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
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {TABLE} SET status = 1 WHERE id IN %s AND status = 0", [ids])
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
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")


def _race(way: Way, orders: int, for_s: float) -> tuple[Cell, ...]:
    """Return how late orders end, the looks a second, the time of an empty one, and doubles."""
    start = time.time()
    due_s = {it: start + for_s * it / orders for it in range(1, orders + 1)}
    _await_payment(due_s)
    late_ms: dict[int, float] = {}
    taken: list[int] = []

    def work(_: int) -> None:
        try:
            look_at = start
            while len(late_ms) < orders:
                time.sleep(max(0.0, look_at - time.time()))
                now = time.time()
                ids = end_due(way, int(1_000 * now))
                ended = time.time()
                taken.extend(ids)
                late_ms.update({it: 1_000 * (ended - due_s[it]) for it in ids})
                look_at += way.every_s
        finally:
            connection.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    percentiles = quantiles(late_ms.values(), n=100)
    empty_look_ms = _ms(lambda: end_due(way, int(1_000 * start)), 50)
    twice = len(taken) - len(late_ms)
    return percentiles[49], percentiles[98], WORKERS / way.every_s, empty_look_ms, twice


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
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {TABLE} WHERE status = 0")
        return int(cursor.fetchone()[0])


def _await_payment(due_s: dict[int, float]) -> None:
    """Write unpaid orders, as rows and in the sorted set."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        columns = "id INT PRIMARY KEY, due_ms BIGINT, status TINYINT, KEY (status, due_ms)"
        cursor.execute(f"CREATE TABLE {TABLE} ({columns}) ENGINE=InnoDB")
        rows = ", ".join(f"({it}, {int(1_000 * at)}, 0)" for it, at in due_s.items())
        cursor.execute(f"INSERT INTO {TABLE} VALUES {rows}")
    ledger_connection().delete(DUE)
    ledger_connection().zadd(DUE, {it: int(1_000 * at) for it, at in due_s.items()})


EXPERIMENTS = (
    Experiment(
        "leaderboard",
        gettext_lazy("A leaderboard"),
        gettext_lazy("how|count an order, ms|top ten, ms|rank of one, ms|sales lost with Redis"),
        lead,
    ),
    Experiment(
        "delay-queue",
        gettext_lazy("A delay queue for unpaid orders"),
        gettext_lazy(
            "how|late p50, ms|late p99, ms|looks/s|empty look, ms|taken twice"
            "|lost: worker dies|lost: Redis empty"
        ),
        expire,
    ),
)
