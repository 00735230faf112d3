"""Faults of the back half: its processes, its messages, its entries, its broker.

Beside these, ``tests/orders/fulfilment/test_worker_faults.py`` has the same faults one by one in
one process, and ``tests/concurrency/test_lost_work.py`` the control without the sweep.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.utils import timezone
from kombu import Connection
from pytest_django import Settings
from redis import Redis

from orders.fulfilment.sweep import sweep
from orders.models import RefusalReason, VoucherOrder
from orders.placing.tokens import read_token
from orders.tasks import fulfil_sale
from seckill_site.celery import app
from tests.concurrency.sales import crowd_of, make_sale, sale_and_crowd
from tests.faults.conftest import OwnRedis, standing_stack, with_inside
from tests.faults.history import RECOVERY_SECONDS, History, Outcome, Report, receipt_of
from tests.fixtures.processes import on_both_ways
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy
from tests.support.sales import change_state
from tests.support.stack import Process, Stack, Web
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency]

BUYERS = 30
BATCH = 10

QUICK: dict[str, Any] = {
    "SECKILL_SWEEP_AGE_MS": "500",
    "SECKILL_SWEEP_PAUSE_MS": "1000",
    "SECKILL_KICK_MS": "1000",
    "SECKILL_LEASE_MS": "1000",
    "SECKILL_BATCH_UNITS": str(BATCH),
    "SECKILL_BEHIND_MS": "0",
}
"""Shorter waits than by default: a quarter of the sweep's age, a sixth of the lease."""

RESTART_SECONDS = 4.0
"""The time in which a shop that was killed and has started again writes what was pending.

A lease of six seconds, as it was once, exceeds it: the dead worker's locks hold the sale back.
"""

POINTS = [
    "fulfill.started",
    "fulfill.locked",
    "fulfill.begun",
    "batch.before_commit",
    "batch.committed",
    "fulfill.released",
    "fulfill.confirmed",
]


@dataclass
class Back:
    """A web server and beat that stand, and a broker of their own behind a proxy."""

    broker: OwnRedis
    line: FaultProxy
    web: Web

    def settings(self, **more: str) -> dict[str, Any]:
        """Return the environment of a worker that works for them."""
        return {**QUICK, "CELERY_BROKER_URL": self.line.url(0), **more}

    def unacked(self) -> set[str]:
        """Return what names the fulfil tasks that workers are at."""
        with self.broker.client() as client:
            return {tag for tag, raw in client.hgetall("unacked").items() if "fulfill_sale" in raw}

    def queued(self) -> list[bytes]:
        """Return the fulfil messages in the broker."""
        with Redis.from_url(self.broker.url()) as client:
            return [raw for raw in client.lrange("celery", 0, -1) if b"fulfill_sale" in raw]


@pytest.fixture(scope="module")
def standing(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Back]:
    """The processes that all tests here share."""
    with (
        OwnRedis(tmp_path_factory.mktemp("broker")) as broker,
        FaultProxy(("127.0.0.1", broker.port), remember=False) as line,
        standing_stack(tmp_path_factory) as stack,
    ):
        back = {**QUICK, "CELERY_BROKER_URL": line.url(0)}
        with stack.together():
            web = stack.web(workers=1, threads=4, **back)
            stack.beat(**back)
        yield Back(broker, line, web)


@pytest.fixture
def back(
    row_locks: None, standing: Back, stack: Stack, server: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Back]:
    """The standing processes, with an empty broker and nothing broken."""
    with standing.broker.client() as client:
        client.flushall()
    monkeypatch.setenv("CELERY_BROKER_URL", standing.broker.url())  # what Celery looks at first
    plain = stack.web(server=server, **standing.settings()) if server == "wsgi" else None
    yield replace(standing, web=plain or standing.web)
    standing.line.heal()


def live_orders_of(sale: SeckillVoucher) -> int:
    return VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count()


def finish(
    history: History,
    sale: SeckillVoucher,
    report: Report,
    *,
    backlog: int = 0,
    seconds: float = RECOVERY_SECONDS,
) -> Outcome:
    """Wait until all is quiet, hold the history against the invariants, and report.

    A backlog of that many orders takes longer: a busy machine writes 400 a second.
    """
    seconds += backlog / 400
    history.settle(sale, seconds=seconds)
    outcome = history.check(sale, recovery_seconds=seconds)
    report(outcome)
    return outcome


# --- K1: a worker's child dies --------------------------------------------------------------------


def test_k1_child_killed_at_any_point_loses_no_order(
    back: Back, stack: Stack, inside: Path, report: Report, subtests: pytest.Subtests
) -> None:
    # With one child, Celery would wait ten seconds for the dead one before it takes more work.
    worker = stack.worker(concurrency=len(POINTS) + 1, **back.settings(**with_inside(inside)))
    for point in POINTS:
        with subtests.test(point):
            history = History("K1", f"worker child killed at {point}")
            sale = make_sale(stock=BUYERS)
            (inside / "failpoint").write_text(point)

            history.fire(sale, crowd_of(sale, count=BUYERS), url=back.web.url)
            worker.wait_until(lambda: not (inside / "failpoint").exists(), what="death")
            history.fault_is_over()

            assert finish(history, sale, report).orders == BUYERS


@pytest.mark.faults
def test_k1_child_killed_at_any_point_splits_no_purchase(
    back: Back, stack: Stack, inside: Path, report: Report, subtests: pytest.Subtests
) -> None:
    """Batches of ten cut purchases of three; with a unit too few in the row, one is refused."""
    worker = stack.worker(concurrency=len(POINTS) + 1, **back.settings(**with_inside(inside)))
    for point in POINTS:
        with subtests.test(point):
            history = History("K1", f"worker child killed at {point}, three units each")
            sale = make_sale(stock=3 * BUYERS, limit=3)
            change_state(sale.pk, total=3 * BUYERS + 1)
            (inside / "failpoint").write_text(point)

            history.press(sale, crowd_of(sale, count=BUYERS))
            history.press(sale, crowd_of(sale, count=1), quantity=1)
            worker.wait_until(lambda: not (inside / "failpoint").exists(), what="death")
            history.fault_is_over()

            history.settle(sale)
            outcome = history.check(sale, may_refuse=True)
            report(outcome)
            assert outcome.orders in (3 * BUYERS, 3 * BUYERS - 2)


def deaths_of(worker: Process) -> int:
    return worker.text().count("exited with 'signal 9 (SIGKILL)'")


# --- K2: the whole group dies ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "kills"),
    [
        pytest.param(600, 3, marks=pytest.mark.faults),
        pytest.param(20_000, 15, marks=[pytest.mark.faults, pytest.mark.timeout(600)]),
    ],
)
def test_k2_repeatedly_killed_worker_loses_no_order(
    back: Back, stack: Stack, report: Report, orders: int, kills: int
) -> None:
    history = History("K2", f"worker group killed {kills} times")
    sale, tokens = sale_and_crowd(stock=orders, count=orders)
    a_round = orders // kills + 1

    for first in range(0, orders, a_round):
        worker = stack.worker(concurrency=2, **back.settings())
        enough = VoucherOrder.objects.count() + a_round // 4
        now = tokens[first : first + a_round]
        with history.buying(sale, now, url=back.web.url, at_a_time=50):
            wait_for(partial(has_more_orders, than=enough), what="orders")
            worker.kill()

    assert len(history.accepted_ids(sale)) == orders
    with history.fault():
        stack.worker(concurrency=2, **back.settings())
    assert finish(history, sale, report, backlog=orders).orders == orders


def test_k2_killed_shop_writes_all_orders_after_its_restart(
    transactional_db: None, row_locks: None, stack: Stack, report: Report
) -> None:
    """Everything but Redis and the database is killed, amid a batch, with the default settings.

    The best of three, because the machine may be busy.
    """
    outcome = kill_and_restart(stack)
    for _ in range(2):
        if outcome.worst_recovery_s > RESTART_SECONDS:
            outcome = kill_and_restart(stack)
    assert outcome.worst_recovery_s <= RESTART_SECONDS
    assert outcome.orders == 666
    report(outcome)


def kill_and_restart(stack: Stack) -> Outcome:
    history = History("K2", "web, worker and beat killed and restarted together")
    sale = make_sale(stock=666)
    web = stack.web(workers=1, threads=4)
    history.fire(sale, crowd_of(sale, count=666), url=web.url)
    with stack.together():
        beat = stack.beat()
        worker = stack.worker(concurrency=2, FAILPOINT="batch.before_commit=stop")
    worker.wait_for_stopped_child()
    for process in (web, worker, beat):
        process.kill()

    with stack.together():
        again = [stack.web(workers=1, threads=4), stack.beat(), stack.worker(concurrency=2)]
    history.fault_is_over()

    history.settle(sale)
    outcome = history.check(sale)
    for process in again:
        process.kill()
    return outcome


@pytest.mark.faults
def test_k2_repeatedly_killed_worker_splits_no_purchase(
    back: Back, stack: Stack, report: Report
) -> None:
    history = History("K2", "worker group killed 3 times amid purchases of three units")
    sale = make_sale(stock=9 * BUYERS, limit=3)
    for _ in range(3):
        worker, before = (
            stack.worker(concurrency=2, **back.settings()),
            VoucherOrder.objects.count(),
        )
        history.press(sale, crowd_of(sale, count=BUYERS))
        wait_for(partial(has_more_orders, than=before), what="orders")
        worker.kill()

    with history.fault():
        stack.worker(concurrency=2, **back.settings())
    assert finish(history, sale, report).orders == 9 * BUYERS


@pytest.mark.faults
def test_k2_worker_stops_cleanly_under_load(back: Back, stack: Stack, report: Report) -> None:
    history = History("K2", "worker restarted politely under load")
    sale, tokens = sale_and_crowd(stock=300, count=300)
    first = stack.worker(concurrency=2, **back.settings())

    history.fire(sale, tokens[:150], url=back.web.url)
    with history.fault():
        status = first.stop()
        history.fire(sale, tokens[150:], url=back.web.url)
        stack.worker(concurrency=2, **back.settings())

    assert status == 0
    assert finish(history, sale, report).orders == 300


# --- K3: a worker stops and wakes up later --------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("fulfill.begun", marks=pytest.mark.faults),
        pytest.param("batch.before_commit", marks=pytest.mark.faults),
        "batch.committed",
    ],
)
def test_k3_overtaken_worker_writes_nothing(
    back: Back, stack: Stack, report: Report, point: str
) -> None:
    history = History("K3", f"worker stopped at {point} for longer than its lease")
    sale = make_sale(stock=BUYERS + BATCH)
    fence, new = wake_after_another(back, stack, history, sale, point)
    # On a slow machine the old one has had a second task delivered, and begins anew, under a token
    # of its own: what it must not do is write under the one that was overtaken.
    if fence_of(sale) == fence:
        assert live_orders_of(sale) == BUYERS
    else:
        assert fence_of(sale) > fence
    new.resume()

    assert finish(history, sale, report).orders == BUYERS + BATCH


@pytest.mark.faults
def test_k3_overtaken_worker_splits_no_purchase(back: Back, stack: Stack, report: Report) -> None:
    history = History("K3", "worker stopped amid purchases of three units")
    sale = make_sale(stock=3 * BUYERS, limit=3)
    failpoint = {"FAILPOINT": "batch.committed=stop", "DATABASE_URL": impatient(stack.database_url)}
    old = stack.worker(concurrency=1, **back.settings(**failpoint))
    history.press(sale, crowd_of(sale, count=BUYERS))
    stopped = old.wait_for_stopped_child()
    stack.worker(concurrency=1, **back.settings())
    history.fault_is_over()
    history.settle(sale)
    os.kill(stopped, signal.SIGCONT)

    assert finish(history, sale, report).orders == 3 * BUYERS


def wake_after_another(
    back: Back, stack: Stack, history: History, sale: SeckillVoucher, point: str
) -> tuple[int, Process]:
    """Stop a worker, let another write all, stop that; let the first end its task with more to do.

    Returns the fencing token that the other has left in the row, and the other.
    """
    # Else MariaDB would wait ten seconds before it ends the transaction of the stopped worker.
    database_url = impatient(stack.database_url)
    failpoint = {"FAILPOINT": f"{point}=stop", "DATABASE_URL": database_url}
    old = stack.worker(concurrency=1, **back.settings(**failpoint))
    history.fire(sale, crowd_of(sale, count=BUYERS), url=back.web.url)
    stopped = old.wait_for_stopped_child()
    tags = back.unacked()
    app.control.cancel_consumer("celery", reply=True, timeout=10, limit=1)

    new = stack.worker(concurrency=1, **back.settings())
    history.fault_is_over()
    history.settle(sale)
    new.pause()  # what comes now, only the old one could write
    fence = fence_of(sale)
    history.fire(sale, crowd_of(sale, count=BATCH), url=back.web.url)
    os.kill(stopped, signal.SIGCONT)
    old.wait_until(lambda: not tags & back.unacked(), what="end of the task that it was at")
    return fence, new


def fence_of(sale: SeckillVoucher) -> int:
    sale.refresh_from_db()
    return sale.fence


def impatient(database_url: str) -> str:
    """Return the address of the database with the wait for a silent transaction cut short."""
    command = connection.settings_dict["OPTIONS"]["init_command"]
    quicker = command.replace("idle_transaction_timeout = 10", "idle_transaction_timeout = 2")
    assert quicker != command
    separator = "&" if "?" in database_url else "?"
    return f"{database_url}{separator}{urlencode({'init_command': quicker})}"


def has_more_orders(*, than: int) -> bool:
    return VoucherOrder.objects.count() > than


# --- K4: the same task more than once -------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("times", [2, 5])
def test_k4_duplicate_tasks_make_each_order_once(
    back: Back, stack: Stack, report: Report, times: int
) -> None:
    history = History("K4", f"the same task {times} times at once")
    sale = make_sale(stock=10 * BUYERS)
    history.fire(sale, crowd_of(sale, count=10 * BUYERS), url=back.web.url)
    with history.fault():
        for _ in range(times):
            send_task(back, sale_id=sale.pk)
        stack.worker(concurrency=times, **back.settings())

    assert finish(history, sale, report).orders == 10 * BUYERS


@pytest.mark.faults
def test_k4_duplicate_tasks_make_each_purchase_once(
    back: Back, stack: Stack, report: Report
) -> None:
    history = History("K4", "the same task 5 times at once, three units each")
    sale = make_sale(stock=9 * BUYERS, limit=3)
    history.press(sale, crowd_of(sale, count=3 * BUYERS))
    with history.fault():
        for _ in range(5):
            send_task(back, sale_id=sale.pk)
        stack.worker(concurrency=5, **back.settings())

    assert finish(history, sale, report).orders == 9 * BUYERS


def send_task(back: Back, **kwargs: object) -> None:
    """Publish a fulfil task past the kick, straight to the broker, whatever its arguments."""
    with Connection(back.broker.url()) as broker:
        app.send_task(fulfil_sale.name, kwargs=kwargs, connection=broker)


# --- K5: poison -----------------------------------------------------------------------------------


@pytest.mark.faults
def test_k5_order_killing_its_process_is_set_aside(
    back: Back, stack: Stack, inside: Path, report: Report
) -> None:
    history = History("K5", "an order that kills its process")
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    bad = tokens[BATCH + 3]
    (inside / "deadly").write_text(f"{bad.partition('-')[0]} kill")
    history.fire(sale, tokens, url=back.web.url)
    with history.fault():
        settings = back.settings(SECKILL_MAX_TRIES="2", **with_inside(inside))
        worker = stack.worker(concurrency=5, **settings)
    assert_set_aside(history, sale, bad, report)
    # Once in its batch, once among a few and twice alone: no crash loop.
    worker.wait_until(lambda: deaths_of(worker) == 4, what="fourth death")


@pytest.mark.faults
@pytest.mark.parametrize("nth", [BATCH + 3, BATCH + 4], ids=["all or none", "what is left"])
def test_k5_purchase_killing_its_process_is_set_aside_whole(
    back: Back, stack: Stack, inside: Path, report: Report, nth: int
) -> None:
    history = History("K5", "a purchase of three units that kills its process")
    sale = make_sale(stock=3 * BUYERS, limit=3)
    tokens = crowd_of(sale, count=BUYERS)
    (inside / "deadly").write_text(f"{tokens[nth].partition('-')[0]} kill")
    history.press(sale, tokens)
    with history.fault():
        settings = back.settings(SECKILL_MAX_TRIES="2", **with_inside(inside))
        worker = stack.worker(concurrency=5, **settings)
    assert_set_aside(history, sale, tokens[nth], report, units=3)
    worker.wait_until(lambda: deaths_of(worker) == 4, what="fourth death")


def test_k5_order_refused_by_database_is_set_aside_within_five_seconds_by_default(
    back: Back, stack: Stack, report: Report
) -> None:
    """The best of three, because the machine may be busy."""
    worker = stack.worker(concurrency=1, CELERY_BROKER_URL=back.line.url(0))
    outcomes: list[Outcome] = []
    while len(outcomes) < 3 and not (outcomes and outcomes[-1].worst_recovery_s <= 5.0):
        history = History("K5", "an order that raises, default settings")
        sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
        bad = tokens[BATCH + 3]
        with poisoned_table(user_id=read_token(bad, sale_id=sale.pk, now_ms=0).user_id):
            with history.fault():
                history.fire(sale, tokens, url=back.web.url)
            assert_set_aside(history, sale, bad, outcomes.append)
    assert outcomes[-1].worst_recovery_s <= 5.0
    report(outcomes[-1])
    assert deaths_of(worker) == 0


@pytest.mark.faults
@pytest.mark.parametrize(("way", "verb"), [("kill", "kills"), ("hang", "hangs")])
def test_k5_deadly_order_is_set_aside_within_thirty_seconds_by_default(
    back: Back, stack: Stack, inside: Path, report: Report, way: str, verb: str
) -> None:
    """With the settings of the product: big batches, three tries and its own waits."""
    history = History("K5", f"an order that {verb} its process, default settings")
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    bad = tokens[BATCH + 3]
    (inside / "deadly").write_text(f"{bad.partition('-')[0]} {way}")
    history.fire(sale, tokens, url=back.web.url)
    with history.fault():
        settings = {"CELERY_BROKER_URL": back.line.url(0), **with_inside(inside)}
        stack.worker(concurrency=2, **settings)
    assert_set_aside(history, sale, bad, report, seconds=30.0)


def assert_set_aside(
    history: History,
    sale: SeckillVoucher,
    bad: str,
    report: Report,
    *,
    seconds: float = RECOVERY_SECONDS,
    units: int = 1,
) -> None:
    """All others are orders; the receipt of the bad one says that it failed, its units are back."""
    others = units * (BUYERS - 1)
    wait_for(lambda: live_orders_of(sale) == others, what="others", seconds=seconds)
    history.settle(sale, seconds=seconds)
    outcome = history.check(sale, may_refuse=True, recovery_seconds=seconds)
    report(outcome)
    assert (outcome.orders, outcome.refused) == (others, 1)
    receipt = receipt_of(read_token(bad, sale_id=sale.pk, now_ms=0))
    assert receipt
    assert (receipt.status, receipt.reason) == ("refused", RefusalReason.FAILED)
    assert snapshot(sale_id=sale.pk).remaining == units


@contextmanager
def poisoned_table(*, user_id: int) -> Iterator[None]:
    """Let the database raise whenever a live order of this buyer is written."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER poison BEFORE INSERT ON orders_voucherorder FOR EACH ROW "
            f"IF NEW.user_id = {user_id} AND NEW.live THEN "
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'poison'; END IF"
        )
        try:
            yield
        finally:
            cursor.execute("DROP TRIGGER poison")


# --- K6: the broker -------------------------------------------------------------------------------


@on_both_ways
def test_k6_broker_restarted_empty_loses_no_order(back: Back, stack: Stack, report: Report) -> None:
    history = History("K6", "broker restarted empty")
    sale, tokens = sale_and_crowd(stock=2 * BUYERS, count=2 * BUYERS)
    stack.worker(concurrency=1, **back.settings())
    history.fire(sale, tokens[:BUYERS], url=back.web.url)
    history.settle(sale)

    with history.fault():
        back.broker.kill()
        back.broker.forget_all()
        history.fire(sale, tokens[BUYERS:], url=back.web.url)
        back.broker.start()

    assert finish(history, sale, report).orders == 2 * BUYERS


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [8, 120])
def test_k6_worker_recovers_from_silent_broker(
    back: Back, stack: Stack, report: Report, seconds: int
) -> None:
    history = History("K6", f"broker unreachable without a reset for {seconds} s")
    sale, tokens = sale_and_crowd(stock=2 * BUYERS, count=2 * BUYERS)
    stack.worker(concurrency=1, **back.settings())
    history.fire(sale, tokens[:BUYERS], url=back.web.url)
    history.settle(sale)

    with history.fault():
        back.line.stall()
        history.fire(sale, tokens[BUYERS:], url=back.web.url)
        time.sleep(seconds)  # the length of the outage is the fault
        back.line.heal()

    assert finish(history, sale, report).orders == 2 * BUYERS


@pytest.mark.faults
def test_k6_worker_recovers_from_failed_acknowledgement(
    back: Back, stack: Stack, report: Report
) -> None:
    """Kombu logs an acknowledgement that failed, and would wait for it for ever."""
    history = History("K6", "broker unreachable for 8 s while a task ends")
    sale, tokens = sale_and_crowd(stock=2 * BATCH, count=2 * BATCH)
    settings = back.settings(FAILPOINT="fulfill.confirmed=stop")
    worker = stack.worker(concurrency=1, **settings)
    history.fire(sale, tokens[:BATCH], url=back.web.url)
    stopped = worker.wait_for_stopped_child()

    with history.fault():
        back.line.stall()
        os.kill(stopped, signal.SIGCONT)
        history.fire(sale, tokens[BATCH:], url=back.web.url)
        time.sleep(8)  # longer than the worker waits for an answer to its acknowledgement
        back.line.heal()

    assert finish(history, sale, report).orders == 2 * BATCH


def task_with(
    body: bytes, *, content_type: str = "application/json", headers: object = None
) -> bytes:
    """Return a message for a worker, in the form of the broker."""
    message = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": content_type,
        "headers": {"task": "orders.tasks.fulfill_sale", "id": "1"} if headers is None else headers,
        "properties": {
            "delivery_tag": "junk",
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "body_encoding": "base64",
        },
    }
    return json.dumps(message).encode()


SENSELESS = b'[[], {"sale_id": 0}, {}]'
JUNK = [
    b"no JSON at all \xff\xfe",
    b"{}",
    b"[1, 2]",
    b'"text"',
    b'{"body": 5, "headers": null, "properties": []}',
    task_with(b"no JSON"),
    task_with(b"{}"),
    task_with(b"null"),
    task_with(b"[[], {}]"),
    task_with(b"[[], null, {}]"),
    task_with(SENSELESS).replace(b'"body": "', b'"body": "!'),  # no base64
    task_with(SENSELESS, content_type="application/x-python-serialize"),
    task_with(SENSELESS, headers={}),
    task_with(SENSELESS, headers={"task": "no.such.task", "id": "1"}),
    task_with(SENSELESS, headers={"task": 5, "id": []}),
]


@pytest.mark.faults
def test_k6_unknown_tasks_do_not_stop_a_worker(back: Back, stack: Stack, report: Report) -> None:
    history = History("K6", "tasks with senseless arguments in the queue")
    sale = make_sale(stock=BUYERS)
    worker = stack.worker(concurrency=1, **back.settings())
    with history.fault():
        for sale_id in (0, -1, 10**30, "abc", None, [1], 999_999):
            send_task(back, sale_id=sale_id)
        send_task(back)
        send_task(back, id=sale.pk)
        send_task(back, sale_id=sale.pk, of_a_later_release=True)
    history.fire(sale, crowd_of(sale, count=BUYERS), url=back.web.url)

    assert finish(history, sale, report).orders == BUYERS
    assert worker.popen.poll() is None


def test_k6_flood_of_junk_holds_no_order_up(back: Back, stack: Stack, report: Report) -> None:
    history = History("K6", "500 junk messages in the queue")
    sale = make_sale(stock=BUYERS)
    with history.fault(), Redis.from_url(back.broker.url()) as client:
        client.lpush("celery", *(JUNK[number % len(JUNK)] for number in range(500)))
        history.fire(sale, crowd_of(sale, count=BUYERS), url=back.web.url)
    worker = stack.worker(concurrency=1, **back.settings())

    assert finish(history, sale, report).orders == BUYERS
    assert worker.popen.poll() is None
    with back.broker.client() as client:
        wait_for(lambda: not client.exists("unacked"), what="no message of junk left")
    assert b"dropped junk" in worker.log.read_bytes()


# --- K7: a backlog --------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("orders", [2_000, pytest.param(50_000, marks=pytest.mark.timeout(900))])
def test_k7_backlog_drains_without_a_storm_of_tasks(
    back: Back, stack: Stack, report: Report, settings: Settings, orders: int
) -> None:
    settings.SECKILL_SWEEP_AGE_MS, settings.SECKILL_SWEEP_PAUSE_MS = 50, 100
    settings.SECKILL_KICK_MS = 200
    history = History("K7", "backlog with workers off and sweeps on")
    sale = make_sale(stock=orders)
    history.fire(sale, crowd_of(sale, count=orders), url=back.web.url)
    assert snapshot(sale_id=sale.pk).pending == orders

    for _ in range(10):
        wait_for(lambda: bool(sweep(now=timezone.now())), what="a sweep")
        assert len(back.queued()) == 1

    with history.fault():
        stack.worker(concurrency=2, **{**back.settings(), "SECKILL_BATCH_UNITS": "200"})
    assert finish(history, sale, report, backlog=orders).orders == orders
