"""An upgrade amid a sale: the release before works on the new schema, and is then replaced.

The processes of the release before run its own code, from git, on the tables of its own migrations.
While a crowd buys, the migrations of this release run; then each process is replaced by one of this
release, as ``docs/upgrading.md`` says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from orders.models import VoucherOrder
from seckill_site.redis.ledger_connection import ledger_connection
from tests.faults.history import ACCEPTED, History
from tests.support.crowd import NO_ANSWER, Answer
from tests.support.patience import wait_for
from tests.support.stack import ROOT, Stack, Web
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.operations, pytest.mark.usefixtures("row_locks")]

BEFORE = "f07410e9023b3ae97923ad75e3883a269bf02bad"
"""The last commit of the release before."""

OLD_ORDERS = 300_000
BUYERS, STOCK = 4_000, 3_000
AT_A_TIME, ANSWERS_PER_STEP = 8, 160
LONGEST_WAIT_S = 1.0
"""No order waits longer for a migration."""


def run(*command: str, root: Path = ROOT, database_url: str = "") -> str:
    """Run a command of ``manage.py`` of a checkout, and return what it prints."""
    environ = os.environ | ({"DATABASE_URL": database_url} if database_url else {})
    line = [sys.executable, "manage.py", *command]
    done = subprocess.run(line, cwd=root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the code of the release before."""
    if subprocess.run(["git", "cat-file", "-e", BEFORE], cwd=ROOT, check=False).returncode:
        pytest.skip(f"skipped: this clone lacks the commit {BEFORE[:8]}")
    directory = tmp_path_factory.mktemp("before")
    packed = directory / "before.tar"
    subprocess.run(["git", "archive", "--output", packed, BEFORE], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", packed, "-C", directory], check=True)
    return directory


@pytest.fixture
def old_stack(stack: Stack, before: Path) -> Iterator[Stack]:
    """Return a stack of the release before, on a database of its own that the test uses, too."""
    own, name = connection.settings_dict["NAME"], "test_before_the_upgrade"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE DATABASE {name}")
    connection.close()
    connection.settings_dict["NAME"] = name
    with Stack(stack.directory, database=name) as old:
        try:
            old.root = before
            run("migrate", "--verbosity", "0", root=before, database_url=old.database_url)
            run("collectstatic", "--no-input", "--verbosity", "0", root=before)
            yield old
        finally:
            connection.close()
            connection.settings_dict["NAME"] = own
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")


def add_old_orders(count: int, *, sale_id: int) -> None:
    """Add copies of an order, as of buyers whose accounts are gone, so that the table is large."""
    table = VoucherOrder._meta.db_table
    changed = {"id": "seq", "user_id": "NULL", "live": "NULL", "status": "'expired'"}
    changed["seckill_voucher_id"] = str(sale_id)
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW COLUMNS FROM {table}")
        columns = [str(row[0]) for row in cursor.fetchall()]
        values = ", ".join(changed.get(name, f"`{name}`") for name in columns)
        names = ", ".join(f"`{name}`" for name in columns)
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {values}"
            f" FROM (SELECT * FROM {table} LIMIT 1) AS one, seq_1_to_{count}"
        )


class Crowd:
    """Buyers who order all the time, from the web servers that take requests just then."""

    def __init__(self, sale: SeckillVoucher, tokens: list[str], webs: list[Web]) -> None:
        self.sale, self.tokens, self.webs = sale, tokens, webs
        self.history = History("U1", "upgrade amid a sale")
        self.longest_stall_s = 0.0
        self._sending = threading.Lock()
        self._over = threading.Event()

    @contextmanager
    def buying(self) -> Iterator[None]:
        threads = [threading.Thread(target=it) for it in (self._buy, self._watch_stalls)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def wait_for_answers(self) -> None:
        wanted = len(self.history.events) + ANSWERS_PER_STEP
        wait_for(lambda: len(self.history.events) >= wanted, what="answers")

    def replace_web(self, number: int, new: Web) -> None:
        """Send no more to a server, as nginx does once its listener is gone, and end it."""
        with self._sending:
            gone, self.webs[number] = self.webs[number], new
        gone.stop()

    def _buy(self) -> None:
        for number in cycle(range(0, len(self.tokens), AT_A_TIME)):
            if self._over.is_set():
                return
            with self._sending:
                web = self.webs[number // AT_A_TIME % len(self.webs)]
                self.history.fire(self.sale, self.tokens[number : number + AT_A_TIME], url=web.url)
            time.sleep(0.01)

    def _watch_stalls(self) -> None:
        """Measure for how long the machine stood still, which is no migration's fault."""
        before = time.monotonic()
        while not self._over.wait(0.01):
            now = time.monotonic()
            self.longest_stall_s = max(self.longest_stall_s, now - before - 0.01)
            before = now


@pytest.mark.timeout(600)
def test_release_before_is_replaced_amid_a_sale(
    old_stack: Stack, request: pytest.FixtureRequest
) -> None:
    run_old: Any = {"root": old_stack.root, "database_url": old_stack.database_url}
    with old_stack.together():
        webs = [old_stack.web(), old_stack.web()]
        old_worker, old_beat = old_stack.worker(), old_stack.beat()
    terms = ("--title", "T", "--stock", str(STOCK), "--begins-in", "-1", "--ends-in", "3600")
    sale = SeckillVoucher(pk=int(run("create_sale", *terms, **run_old).split()[-1]))
    over = (*terms[:4], "--begins-in", "-100", "--ends-in", "-10")
    last_sale_id = int(run("create_sale", *over, **run_old).split()[-1])
    more = ("--count", str(BUYERS), "--tokens-for", str(sale.pk))
    crowd = Crowd(sale, run("create_buyers", *more, **run_old).split(), webs)

    with crowd.buying():
        crowd.wait_for_answers()
        wait_for(lambda: _orders() > 0, what="an order")
        add_old_orders(OLD_ORDERS, sale_id=last_sale_id)
        since = len(crowd.history.events)
        began = time.monotonic()
        run("migrate", "--verbosity", "0", database_url=old_stack.database_url)
        took = time.monotonic() - began
        slowest = max((it.answer.seconds for it in crowd.history.events[since:]), default=0)
        crowd.wait_for_answers()  # the release before, on the new tables

        old_stack.root = ROOT
        worker = old_stack.worker()
        old_worker.stop()
        crowd.wait_for_answers()
        for number in range(2):
            crowd.replace_web(number, old_stack.web())
            crowd.wait_for_answers()
        old_beat.stop()
        old_stack.beat()
        crowd.wait_for_answers()

    figures = f"migrated {OLD_ORDERS} orders in {took:.1f} s; slowest order {slowest:.3f} s"
    request.node.add_report_section("call", "upgrade", figures)
    assert slowest - crowd.longest_stall_s <= LONGEST_WAIT_S
    assert not wrong_answers(crowd.history)
    assert crowd.history.told()[ACCEPTED] > 5 * ANSWERS_PER_STEP
    crowd.history.ask_again(sale, url=webs[0].url)
    crowd.history.settle(sale)
    crowd.history.check(sale, slowest_seconds=60)
    assert ledger_connection().hget(LedgerKeys(sale.pk).sale, "format") is None
    assert worker.popen.poll() is None


def wrong_answers(history: History) -> list[Answer]:
    """Return the answers that no buyer may get: server errors, and none at all."""
    answers = [event.answer for event in history.events]
    return [it for it in answers if it.status in (500, 502, 504, NO_ANSWER)]


def _orders() -> int:
    return VoucherOrder.objects.using("default").values("pk").count()
