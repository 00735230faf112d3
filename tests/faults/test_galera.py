"""G1: Galera behind HAProxy loses its writer amid a sale, and every node has the same rows.

The nodes are set up as ``deploy/README.md`` says, with binary logs. What happens without them:
``test_galera_binary_log.py``.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import MySQLdb
import pytest
from django.db import OperationalError, connection, migrations, models, transaction
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from orders.lifecycle.waiting_list import join
from orders.models import DrawEntry, OrderStatus, RefusalReason, VoucherOrder
from orders.placing.tokens import read_token
from seckill_site.checks import services
from tests.concurrency.sales import crowd_of, sale_and_crowd
from tests.faults.galera import CONFIGURATION, PROVIDER, Cluster, HAProxy, Node, running_cluster
from tests.faults.history import History, Report, receipt_of
from tests.faults.private import database_at
from tests.faults.test_draw import ENTRIES, UNITS, assert_drawn
from tests.faults.test_k_back_half import poisoned_table
from tests.faults.test_r_life import (
    OFTEN,
    STOCK,
    assert_is_whole,
    let_time_pass,
    now_ms,
    orders_of,
    sold_out_sale,
    user_of,
)
from tests.support.draws import end, listed, make_draw
from tests.support.patience import wait_for
from tests.support.stack import Stack, beat_every
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.concurrency,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("row_locks"),
    pytest.mark.skipif(not PROVIDER.exists(), reason="apt-get install galera-4"),
    pytest.mark.skipif(
        not shutil.which("haproxy", path="/usr/sbin:/usr/bin"), reason="apt-get install haproxy"
    ),
]

ORDERS = 500
RECOVERY_SECONDS = 15.0
"""From the loss of the writer to the row of an order that was accepted after it."""

SMALL: dict[str, Any] = {"SECKILL_BATCH_UNITS": "10"}
"""Many transactions, so that each fault meets some."""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        with django_db_blocker.unblock():
            running = running_cluster(tmp_path_factory.mktemp("galera"), binary_log=True)
            nodes = stack.enter_context(running)
        yield nodes


@pytest.fixture(scope="module")
def haproxy(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HAProxy]:
    with HAProxy(tmp_path_factory.mktemp("haproxy"), cluster.nodes) as proxy:
        yield proxy


@pytest.fixture
def stack(haproxy: HAProxy, transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    """Real processes, which use the cluster through HAProxy as this process does."""
    with database_at(haproxy.url()), Stack(tmp_path, database="seckill") as stack:
        yield stack
        for process in stack.processes:
            process.kill()


class Line:
    """Buyers who come a few at a time, while something happens to the cluster."""

    def __init__(self, history: History, sale: SeckillVoucher, tokens: list[str], url: str) -> None:
        self._history, self._sale, self._tokens, self._url = history, sale, tokens, url

    def come(self, count: int) -> list[int]:
        """Let so many buy; return their order ids."""
        tokens = [self._tokens.pop() for _ in range(count)]
        answers = self._history.fire(self._sale, tokens, url=self._url)
        return [int(it.body["order_id"]) for it in answers if it.status == 202]

    def come_until(self, condition: Callable[[], object], *, what: str) -> None:
        """Let some buy now and then, until a condition holds."""

        def holds() -> bool:
            if len(self._tokens) > ORDERS // 4:
                self.come(2)
            time.sleep(0.05)
            with suppress(MySQLdb.OperationalError):
                return bool(condition())
            return False

        wait_for(holds, what=what, seconds=60)

    def come_all(self) -> None:
        self.come(len(self._tokens))


@contextmanager
def lost_writer(cluster: Cluster, how: str) -> Iterator[None]:
    """Take the writer away; at the end of the block it is a member again."""
    writer, *others = cluster.nodes
    faults: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "killed": (writer.kill, partial(writer.start, peers=others)),
        "stopped": (writer.stop, writer.resume),
        "cut off": (writer.cut_off, partial(writer.cut_off, isolated=False)),
    }
    away, back = faults[how]
    away()
    try:
        yield
    finally:
        back()


def is_whole(cluster: Cluster, haproxy: HAProxy) -> bool:
    """Return whether all nodes are members and the first is the writer."""
    return (
        all(it.status("wsrep_cluster_size") == "3" and it.is_member() for it in cluster.nodes)
        and haproxy.writer() == "node1"
    )


def assert_one_writer(cluster: Cluster) -> None:
    wait_for(
        lambda: [it.clients() > 0 for it in cluster.nodes] == [True, False, False],
        what="clients of the first node alone",
    )


# --- The writer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_g1_sale_goes_on_without_its_writer(
    stack: Stack, cluster: Cluster, haproxy: HAProxy, report: Report, how: str
) -> None:
    history = History("G1", f"writer {how}")
    with stack.together():
        web, _ = stack.web(workers=2), stack.worker("--beat", **SMALL)
    sale, tokens = sale_and_crowd(stock=ORDERS, count=ORDERS + 50)
    line = Line(history, sale, tokens, web.url)
    line.come(100)
    wait_for(VoucherOrder.objects.exists, what="a first order")
    with lost_writer(cluster, how):
        history.fault_is_over()
        [later] = line.come(1)
        row = f"SELECT 1 FROM seckill.orders_voucherorder WHERE id = {later}"
        line.come_until(lambda: cluster.nodes[1].rows(row), what="an order on the second node")
        history.recovered()
        assert haproxy.writer() == "node2"
    line.come_until(lambda: is_whole(cluster, haproxy), what="the first node as the writer")
    history.fault_is_over()
    connection.close()
    line.come_all()
    history.settle(sale)
    history.ask_again(sale, url=web.url)
    outcome = history.check(sale, recovery_seconds=RECOVERY_SECONDS)
    assert outcome.orders == ORDERS
    report(outcome)
    assert_one_writer(cluster)
    cluster.assert_agrees()


def test_g1_waiting_list_gets_its_units_without_the_writer(
    stack: Stack, cluster: Cluster, haproxy: HAProxy, report: Report
) -> None:
    history = History("G1", "writer killed, while units go to the waiting list")
    with stack.together():
        web = stack.web()
        worker = stack.worker("--beat", concurrency=1, FAILPOINT="end.before_commit=stop", **OFTEN)
    sale, losers = sold_out_sale(stack, web.url, history)
    waiting = [
        join(token_text=token, sale_id=sale.pk, user_id=user_of(token), now_ms=now_ms())
        for token in losers
    ]
    let_time_pass(sale)
    worker.wait_for_stopped_child()
    with lost_writer(cluster, "killed"):
        history.fault_is_over()
        wait_for(lambda: haproxy.writer() == "node2", what="another writer")
        worker.resume()
        connection.close()
        wait_for(lambda: orders_of(sale, OrderStatus.UNPAID) == STOCK, what="orders of the line")
        history.recovered()
    wait_for(lambda: is_whole(cluster, haproxy), what="the first node as the writer")
    connection.close()
    got = VoucherOrder.objects.filter(seckill_voucher=sale, status=OrderStatus.UNPAID)
    assert {order.pk for order in got} == {it.order_id for it in waiting}
    assert orders_of(sale, OrderStatus.EXPIRED) == STOCK
    assert_is_whole(sale, left=0)
    report(history.check(sale, may_refuse=True, recovery_seconds=RECOVERY_SECONDS))
    cluster.assert_agrees()


def test_g1_draw_is_drawn_without_the_writer(
    stack: Stack, cluster: Cluster, haproxy: HAProxy, report: Report
) -> None:
    history = History("G1", "writer killed, while a draw draws")
    with stack.together():
        web = stack.web()
        worker = stack.worker(concurrency=1, FAILPOINT="draw.before_draw=stop")
        stack.beat(**beat_every(advance_draws=0.3))
    sale = make_draw(stock=UNITS)
    history.fire(sale, crowd_of(sale, count=ENTRIES), url=web.url)
    rows = DrawEntry.objects.filter(seckill_voucher=sale)
    wait_for(lambda: rows.count() == ENTRIES, what="rows of the entries")
    end(sale)
    worker.wait_for_stopped_child()
    with lost_writer(cluster, "killed"):
        history.fault_is_over()
        wait_for(lambda: haproxy.writer() == "node2", what="another writer")
        worker.resume()
        connection.close()
        assert_drawn(sale, history.accepted_ids(sale))
        history.recovered()
    wait_for(lambda: is_whole(cluster, haproxy), what="the first node as the writer")
    connection.close()
    assert_drawn(sale, history.accepted_ids(sale))
    assert len(listed(sale)) == ENTRIES
    outcome = history.check(sale, may_refuse=True, window=False, recovery_seconds=RECOVERY_SECONDS)
    report(outcome)
    cluster.assert_agrees()


# --- A writer too many ----------------------------------------------------------------------------


def test_g1_second_writer_costs_no_order(stack: Stack, cluster: Cluster, report: Report) -> None:
    """A certification failure is error 1213 at COMMIT: the row had no lock on the other node."""
    history = History("G1", "1213 at COMMIT: another node writes the sale's row")
    web = stack.web(workers=2)
    worker = stack.worker(concurrency=1, FAILPOINT="batch.before_commit=stop", **SMALL)
    sale, tokens = sale_and_crowd(stock=ORDERS, count=ORDERS)
    line = Line(history, sale, tokens, web.url)
    first, second, _ = cluster.nodes

    def write_there() -> None:
        with suppress(MySQLdb.OperationalError):  # it is the one that is refused
            second.rows(
                "UPDATE seckill.vouchers_seckillvoucher SET created_at = created_at - "
                f"INTERVAL 1 MICROSECOND WHERE id = {sale.pk}"
            )

    def write_before_commit() -> None:
        before = aborted(first)
        write_there()
        wait_for(lambda: aborted(first) > before, what="an aborted transaction")

    @transaction.atomic
    def come_second() -> None:
        SeckillVoucher.objects.filter(pk=sale.pk).update(created_at=timezone.now())
        write_before_commit()

    with pytest.raises(OperationalError, match="1213"):
        come_second()
    line.come(10)
    worker.wait_for_stopped_child()
    write_before_commit()
    worker.resume()
    before = aborted(first)
    done = threading.Event()

    def go_on() -> None:
        while not done.wait(0.02):
            write_there()

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        line.come_all()
        wait_for(lambda: aborted(first) > before, what="further aborted batches")
    finally:
        done.set()
        writing.join()
    history.fault_is_over()
    history.settle(sale)
    outcome = history.check(sale, recovery_seconds=RECOVERY_SECONDS)
    assert outcome.orders == ORDERS
    report(outcome)
    cluster.assert_agrees()


def aborted(node: Node) -> int:
    """Return how many transactions a node has aborted because another node was first."""
    kinds = ("cert_failures", "bf_aborts")
    return sum(int(node.status(f"wsrep_local_{it}") or 0) for it in kinds)


# --- What the shop itself does --------------------------------------------------------------------


def test_g1_controls_of_a_poison_order_are_on_no_node(
    stack: Stack, cluster: Cluster, report: Report
) -> None:
    history = History("G1", "an order that the database refuses, so that controls are written")
    with stack.together():
        web, _ = stack.web(workers=2), stack.worker("--beat", **SMALL)
    sale, tokens = sale_and_crowd(stock=ORDERS, count=ORDERS)
    bad = read_token(tokens[ORDERS // 2], sale_id=sale.pk, now_ms=0)
    with poisoned_table(user_id=bad.user_id):
        history.fire(sale, tokens, url=web.url)
        history.settle(sale)
    outcome = history.check(sale, may_refuse=True, recovery_seconds=RECOVERY_SECONDS)
    assert (outcome.orders, outcome.refused) == (ORDERS - 1, 1)
    receipt = receipt_of(bad)
    assert receipt
    assert receipt.reason == RefusalReason.FAILED
    assert snapshot(sale_id=sale.pk).remaining == 1
    report(outcome)
    cluster.assert_agrees()


class Expansion(migrations.Migration):
    """What a release adds to the largest table."""

    operations = [
        migrations.AddField(
            "voucherorder", "remark", models.CharField(max_length=20, default="", db_default="")
        ),
        migrations.AddIndex("voucherorder", models.Index(fields=["remark"], name="by_remark")),
    ]


def test_g1_migration_amid_a_sale_costs_no_order(
    stack: Stack, cluster: Cluster, report: Report
) -> None:
    history = History("G1", "a migration of the orders' table")
    with stack.together():
        web, _ = stack.web(workers=2), stack.worker("--beat", **SMALL)
    sale, tokens = sale_and_crowd(stock=ORDERS, count=ORDERS)
    state = MigrationLoader(connection).project_state()
    migration = Expansion("expansion", "orders")
    with history.buying(sale, tokens, url=web.url, at_a_time=10):
        wait_for(VoucherOrder.objects.exists, what="a first order")
        with connection.schema_editor() as editor:
            migration.apply(state.clone(), editor)
        history.fault_is_over()
    try:
        history.settle(sale)
        outcome = history.check(sale, recovery_seconds=RECOVERY_SECONDS)
        assert outcome.orders == ORDERS
        report(outcome)
        cluster.assert_agrees()
    finally:
        with connection.schema_editor() as editor:
            migration.unapply(state.clone(), editor)


def test_binary_logs_are_not_missed(haproxy: HAProxy, transactional_db: None) -> None:
    with database_at(haproxy.url()):
        assert not [it.id for it in services.check_database()]


# --- HAProxy --------------------------------------------------------------------------------------


def test_g1_each_line_of_haproxy_has_its_use(cluster: Cluster, tmp_path: Path) -> None:
    """With the line, and as a control without it."""
    first, *_ = cluster.nodes
    lines = {
        "the check": "    option external-check\n",
        "the cut": " on-marked-down shutdown-sessions",
        "the return": " on-marked-up shutdown-backup-sessions",
    }
    with ExitStack() as running:
        whole = running.enter_context(HAProxy(tmp_path, cluster.nodes))
        without = {
            name: running.enter_context(
                HAProxy(tmp_path, cluster.nodes, CONFIGURATION.replace(line, ""))
            )
            for name, line in lines.items()
        }
        kept, uncut = whole.connect(), without["the cut"].connect()
        first.cut_off()
        try:
            wait_for(lambda: whole.writer() == "node2", what="another writer")
            assert is_cut(kept)
            wait_for(lambda: without["the cut"].writer() == "node2", what="another writer")
            assert not is_cut(uncut)
            # The handshake succeeds, and that is all.
            assert without["the check"].states()["node1"] == "UP"
            with pytest.raises(MySQLdb.OperationalError, match="1047"):
                without["the check"].connect().cursor().execute("SELECT id FROM auth_user")
            wait_for(lambda: without["the return"].writer() == "node2", what="another writer")
            kept, uncut = whole.connect(), without["the return"].connect()
        finally:
            first.cut_off(isolated=False)
        for proxy in (whole, without["the return"]):
            wait_for(partial(is_whole, cluster, proxy), what="the first node as the writer")
        assert is_cut(kept)
        assert not is_cut(uncut), "a second writer"


def is_cut(account: Any) -> bool:
    """Return whether a connection is closed; a node without quorum executes SHOW, too."""
    try:
        account.cursor().execute("SHOW STATUS LIKE 'wsrep_ready'")
    except MySQLdb.OperationalError:
        return True
    return False
