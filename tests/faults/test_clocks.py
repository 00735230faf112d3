"""Clocks that differ: of a web server, a worker or beat, and that of Redis, which jumps."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.conf import settings as site
from django.utils import timezone
from pytest_django import Settings
from redis import Redis

from orders.fulfilment.sweep import sweep
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from tests.concurrency.sales import crowd_of, make_sale, sale_and_crowd
from tests.faults.conftest import ClockedRedis, MovableClock, with_clock, with_inside
from tests.faults.history import History, Report
from tests.faults.private import OwnMariaDB, database_at, make_tables
from tests.support.orders import make_buyers, reserved
from tests.support.patience import MOMENT_S, wait_for
from tests.support.stack import Process, Stack, Web, beat_every
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 60
HOUR_S = 3_600.0
FEW_SECONDS = 8.0
"""The sweep's age and period, a lease that somebody left, and a slow machine."""


def started(stack: Stack, **environs: dict[str, Any]) -> tuple[Web, Process, Process]:
    """Start a web server, a worker and beat, each with an environment of its own."""
    with stack.together():
        web = stack.web(**environs.get("web", {}))
        worker = stack.worker(**environs.get("worker", {}))
        beat = stack.beat(**beat_every(expire=0.5), **environs.get("beat", {}))
    return web, worker, beat


# --- One machine's clock --------------------------------------------------------------------------

SAMPLE = [("worker", 5.0), ("worker", -HOUR_S), ("web", HOUR_S)]
ALL = [(part, s) for part in ("web", "worker", "beat") for s in (5.0, -5.0, HOUR_S, -HOUR_S)]
CASES = [
    pytest.param(part, shift_s, marks=[] if (part, shift_s) in SAMPLE else pytest.mark.faults)
    for part, shift_s in ALL
]


@pytest.mark.parametrize(("part", "shift_s"), CASES)
def test_wrong_clock_of_one_machine_stops_and_ends_nothing(
    stack: Stack, report: Report, part: str, shift_s: float
) -> None:
    """The sale ends in ten minutes: a token that is judged by a fast clock would be expired."""
    history = History("CL", f"clock of {part} {shift_s:+g} s")
    web, _, _ = started(stack, **{part: with_clock(shift_s)})
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    with history.fault():
        history.fire(sale, tokens, url=web.url)
    history.settle(sale, seconds=FEW_SECONDS)
    wait_for_expiry(url=web.url)
    wait_for(lambda: is_named_by(web, part), what="the wrong clock in /readyz")

    outcome = history.check(sale, recovery_seconds=FEW_SECONDS)
    assert outcome.orders == outcome.accepted == BUYERS
    assert_by_right_clock(sale)
    report(outcome)


def is_named_by(web: Web, part: str) -> bool:
    """Say whether ``/readyz`` is ready and names the clock of this part of the shop."""
    with urlopen(f"{web.url}/readyz", timeout=MOMENT_S) as response:
        clocks = json.load(response)["clocks"]
    return any(name.startswith(part) for name in clocks)


def wait_for_expiry(*, url: str) -> None:
    """Wait until a worker has looked for expired orders, and found one of another sale."""
    sale = make_sale(stock=1)
    history = History("CL", "an expired order")
    history.fire(sale, crowd_of(sale, count=1), url=url)
    history.settle(sale)
    order = VoucherOrder.objects.filter(seckill_voucher=sale)
    order.update(pay_by=timezone.now() - dt.timedelta(minutes=1))
    wait_for(lambda: order.get().status == OrderStatus.EXPIRED, what="expiry")


def assert_by_right_clock(sale: SeckillVoucher) -> None:
    """Every order is unpaid, just written, and has its whole time to pay."""
    now, minute = timezone.now(), dt.timedelta(minutes=1)
    for order in VoucherOrder.objects.filter(seckill_voucher=sale):
        assert order.status == OrderStatus.UNPAID
        assert abs(order.created_at - now) < minute
        assert order.pay_by == order.created_at + dt.timedelta(seconds=sale.pay_within_s)


def test_control_worker_that_trusts_its_slow_clock_gives_no_time_to_pay(
    stack: Stack, inside: Path
) -> None:
    (inside / "own clock").touch()
    slow = {**with_inside(inside), **with_clock(-HOUR_S)}
    web, _, _ = started(stack, worker=slow)
    sale = make_sale(stock=BUYERS)
    History("CL", "control").fire(sale, crowd_of(sale, count=BUYERS), url=web.url)

    orders = VoucherOrder.objects.filter(seckill_voucher=sale, pay_by__lt=timezone.now())
    wait_for(lambda: orders.count() == BUYERS, what="orders")


# --- The clock of the database --------------------------------------------------------------------


@dataclass
class ClockedMariaDB:
    """A MariaDB with the shop's tables, whose clock a test may change."""

    url: str
    clock: MovableClock


@pytest.fixture
def clocked_database(
    tmp_path_factory: pytest.TempPathFactory, transactional_db: None
) -> Iterator[ClockedMariaDB]:
    directory = tmp_path_factory.mktemp("mariadb")
    clock = MovableClock(directory)
    server = OwnMariaDB(directory, environ=clock.environ)
    try:
        server.start()
        make_tables(server.url)
        with database_at(server.url):
            yield ClockedMariaDB(server.url, clock)
    finally:
        server.kill()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("database_s", "redis_s", "for_s"),
    [(HOUR_S, 0, 12), (-HOUR_S, 0, 12), (0, HOUR_S, 12), (HOUR_S, HOUR_S, 75)],
)
def test_no_order_ends_early_because_a_clock_was_set(
    clocked_database: ClockedMariaDB,
    clocked_ledger: ClockedRedis,
    tmp_path: Path,
    report: Report,
    database_s: float,
    redis_s: float,
    for_s: float,
) -> None:
    """Orders are accepted before, meanwhile and after; if both clocks are set, they stay so."""
    history = History("CL", f"clock of database {database_s:+g} s, of Redis {redis_s:+g} s")
    there: dict[str, Any] = {"REDIS_URL": clocked_ledger.url()}
    with Stack(tmp_path, database="seckill") as stack:
        web, worker, _ = started(stack, web=there, worker=there, beat=there)
        sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
        third = BUYERS // 3
        history.fire(sale, tokens[:third], url=web.url)
        history.settle(sale)
        with history.fault():
            clocked_database.clock.shift(database_s)
            clocked_ledger.shift_clock(redis_s)
            worker.wait_for_log("a clock was set")
            if not redis_s:  # the sale would be over
                history.fire(sale, tokens[third : 2 * third], url=web.url)
            time.sleep(for_s)
        if for_s == 12:
            clocked_database.clock.shift(0)
            clocked_ledger.shift_clock(0)
            history.fire(sale, tokens[2 * third :], url=web.url)
        history.settle(sale, seconds=FEW_SECONDS)
        outcome = history.check(sale, window=False, recovery_seconds=FEW_SECONDS)
        time.sleep(2)  # some more passes of expiry
    statuses = VoucherOrder.objects.values_list("status", flat=True)
    assert set(statuses) == {OrderStatus.UNPAID}
    assert outcome.orders == outcome.accepted == len(statuses)
    report(outcome)


# --- The clock of Redis ---------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [-60.0, pytest.param(60.0, marks=pytest.mark.faults)])
def test_clock_of_redis_jumps_while_a_task_is_lost(
    stack: Stack, clocked_ledger: ClockedRedis, report: Report, jump_s: float
) -> None:
    history = History("CL", f"clock of Redis {jump_s:+g} s, task lost")
    there: dict[str, Any] = {"REDIS_URL": clocked_ledger.url()}
    web, worker, beat = started(stack, web=there, worker=there, beat=there)
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    worker.pause()
    beat.pause()
    with history.fault():
        history.fire(sale, tokens, url=web.url)
        with Redis.from_url(site.CELERY_BROKER_URL) as broker:
            broker.delete("celery")
        clocked_ledger.shift_clock(jump_s)
        worker.resume()
        beat.resume()
    history.settle(sale, seconds=FEW_SECONDS)

    outcome = history.check(sale, window=False, recovery_seconds=FEW_SECONDS)
    assert outcome.orders == outcome.accepted == BUYERS
    report(outcome)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("kick_ms", "guarded"), [(5_000, True), (120_000, False)])
def test_kick_from_before_the_jump_holds_nothing_up(
    clocked_ledger: ClockedRedis, settings: Settings, kick_ms: int, guarded: bool
) -> None:
    """The control lets the sweep believe that a kick may last so long."""
    sale = make_sale(stock=5)
    reserved(sale, make_buyers(5))
    clocked_ledger.shift_clock(-60)
    settings.SECKILL_KICK_MS = kick_ms
    with clocked_ledger.client() as client:
        assert client.pttl(LedgerKeys(sale.pk).kick) > 60_000

    assert sweep(now=timezone.now()) == ([sale.pk] if guarded else [])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("jump_s", [-60, 60])
def test_lock_of_the_dead_ends_in_time_although_the_clock_jumped(
    clocked_ledger: ClockedRedis, settings: Settings, jump_s: float
) -> None:
    settings.SECKILL_LEASE_MS = 1_000
    sale = make_sale(stock=5)
    reserved(sale, make_buyers(5))
    with clocked_ledger.client() as client:
        client.set(LedgerKeys(sale.pk).sale_lock, "dead 1 0", px=1_000)
    clocked_ledger.shift_clock(jump_s)

    def is_written() -> bool:
        fulfil_sale(sale_id=sale.pk)
        return snapshot(sale_id=sale.pk).pending == 0

    wait_for(is_written, what="an empty pending set", seconds=FEW_SECONDS)
