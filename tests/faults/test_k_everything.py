"""K2: web, worker, beat, Redis and MariaDB are all killed at once, amid a sale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
from django.db import connection

from orders.fulfilment.reconcile import reconcile
from orders.models import VoucherOrder
from tests.concurrency.sales import sale_and_crowd
from tests.faults.conftest import OwnRedis
from tests.faults.history import History, Report
from tests.faults.private import OwnMariaDB, database_at, make_tables
from tests.support.patience import wait_for
from tests.support.stack import Process, Stack, Web, free_port

pytestmark = [pytest.mark.faults, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

QUIET_SECONDS = 8.0
"""From the first 200 of ``/readyz`` on, by the settings of the product."""

ORDERS = 1_500


@pytest.fixture
def mariadb(transactional_db: None, tmp_path: Path) -> Iterator[OwnMariaDB]:
    """A MariaDB that this test may kill."""
    server = OwnMariaDB(tmp_path)
    try:
        server.start()
        make_tables(server.url)
        yield server
    finally:
        server.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("in_a_batch", [False, True], ids=["under load", "amid a batch"])
def test_k2_everything_killed_at_once_is_quiet_within_eight_seconds(
    mariadb: OwnMariaDB, own_ledger: OwnRedis, tmp_path: Path, report: Report, in_a_batch: bool
) -> None:
    history = History("K2", f"everything killed at once{', amid a batch' * in_a_batch}")
    numbers = {"REDIS_URL": 0, "CACHE_URL": 1, "CELERY_BROKER_URL": 2}
    urls = {name: own_ledger.url(number) for name, number in numbers.items()}
    environ = {**urls, "DATABASE_URL": mariadb.url}
    failpoint = {"FAILPOINT": "batch.before_commit=stop"} if in_a_batch else {}
    with database_at(mariadb.url), Stack(tmp_path, database="seckill") as stack:
        sale, tokens = sale_and_crowd(stock=ORDERS, count=ORDERS)
        port = free_port()
        web, worker, beat = start(stack, port, environ, failpoint)
        with history.buying(sale, tokens, url=web.url, at_a_time=20):
            if in_a_batch:
                worker.wait_for_stopped_child()
            else:
                wait_for(lambda: VoucherOrder.objects.count() > ORDERS // 3, what="orders")
            for process in (worker, web, beat):
                process.kill()
            own_ledger.kill()
            mariadb.kill()

            servers = [Thread(target=own_ledger.start), Thread(target=mariadb.start)]
            for server in servers:
                server.start()
            starting = Thread(target=start, args=(stack, port, environ, {}))
            starting.start()
            wait_for(lambda: is_ready(port), what="200 of /readyz")
            history.fault_is_over()
        connection.close()
        history.ask_again(sale, url=web.url)
        history.settle(sale, seconds=QUIET_SECONDS)
        assert reconcile(sale_id=sale.pk).difference == 0
        for thread in (starting, *servers):
            thread.join()
        outcome = history.check(sale, recovery_seconds=QUIET_SECONDS)
    assert outcome.orders == ORDERS
    report(outcome)


def start(
    stack: Stack, port: int, environ: dict[str, Any], of_worker: dict[str, Any]
) -> tuple[Web, Process, Process]:
    with stack.together():
        web = stack.web(workers=2, port=port, **environ)
        return web, stack.worker(**environ, **of_worker), stack.beat(**environ)


def is_ready(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/readyz", timeout=2).status_code == 200
    except requests.RequestException:
        return False
