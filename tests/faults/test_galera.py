"""A cluster of three Galera nodes: what the shop writes to one of them is on all, and nothing else.

MariaDB 10.11 without a binary log, as Debian installs it, sends rows to the other nodes that were
rolled back to a savepoint, if the connection had changed nothing before. The next such row is
refused there as a duplicate, the nodes vote, and the one that wrote leaves the cluster.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import MySQLdb
import pytest
from django.db import IntegrityError, connection, transaction

from orders.fulfilment import batch
from orders.fulfilment.worker import fulfil_sale
from orders.models import Notice, VoucherOrder
from seckill_site.checks import services
from tests.concurrency.sales import make_sale
from tests.faults.private import START_SECONDS, database_at, make_tables, script_library
from tests.support.orders import make_buyers, reserved
from tests.support.patience import wait_for
from tests.support.stack import free_port
from vouchers.catalogue.pictures import drop_unused
from vouchers.models import Merchant, Picture, SeckillVoucher

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.usefixtures("row_locks"),
    pytest.mark.skipif(not PROVIDER.exists(), reason="apt-get install galera-4"),
]

JOINING = """#!/bin/sh
# A new node has a copy of the first one's directory: it needs no data, only what came after.
while [ $# -gt 0 ]; do
  case $1 in --role) role=$2 ;; --address) address=$2 ;; --gtid) position=$2 ;; esac
  shift
done
if [ "$role" = donor ]; then
  echo "$position" >"$address"
  echo "done $position"
else
  note={directory}/position.$$
  echo "ready $note"
  until [ -s "$note" ]; do sleep 0.05; done
  cat "$note"
fi
"""


class Node:
    """A node of the cluster; the shop writes to the first."""

    def __init__(self, directory: Path, number: int, *, peer: str) -> None:
        library, self._directory, place = script_library("servers"), directory, free_ports()
        self.address = f"127.0.0.1:{place}"
        provider = f"gmcast.listen_addr=tcp://{self.address};ist.recv_addr=127.0.0.1:{place + 1}"
        options = (
            "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=2",
            "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}", "--wsrep-cluster-name=shop",
            f"--wsrep-cluster-address=gcomm://{peer}", f"--wsrep-node-name=node{number}",
            f"--wsrep-node-address={self.address}", "--wsrep-sst-method=copied",
            f"--wsrep-provider-options={provider};gcache.size=32M;base_port={place}",
            *([] if peer else ["--wsrep-new-cluster"]),
        )  # fmt: skip
        self.server = library.MariaDB(directory / f"node{number}", options=options)
        self._account = library.system_user()
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it is a member with all data."""
        environ = {**os.environ, "PATH": f"{self._directory}{os.pathsep}{os.environ['PATH']}"}
        with (self._directory / "cluster.log").open("ab") as log:
            command = self.server.prepare()
            self._popen = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        wait_for(lambda: self.status("wsrep_local_state_comment") == "Synced", what="a member")

    def end(self) -> None:
        if self._popen:
            self._popen.terminate()
            self._popen.wait(START_SECONDS)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what a statement returns on this node."""
        socket = str(self.server.socket)
        account = MySQLdb.connect(unix_socket=socket, user=self._account, autocommit=True)
        try:
            cursor = account.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall())
        finally:
            account.close()

    def status(self, name: str) -> str:
        with suppress(MySQLdb.OperationalError):
            return str(self.rows(f"SHOW STATUS LIKE '{name}'")[0][1])
        return ""

    def checksums(self) -> list[tuple[Any, ...]]:
        """Return a checksum of each table of the shop."""
        tables = [name for (name,) in self.rows("SHOW TABLES IN seckill")]
        return self.rows(f"CHECKSUM TABLE {', '.join(f'seckill.`{it}`' for it in tables)}")


class Cluster:
    """Three nodes, of which two began with a copy of the first."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def assert_agrees(self) -> None:
        """Every node is a member and has the same rows, once it has caught up."""
        first, *others = self.nodes
        wait_for(
            lambda: all(it.checksums() == first.checksums() for it in others),
            what="the same rows on every node",
            seconds=10,
        )
        assert [it.status("wsrep_cluster_size") for it in self.nodes] == ["3"] * 3
        assert first.status("wsrep_ready") == "ON"


def free_ports() -> int:
    """Return a port that is free like the next one."""
    while True:
        port = free_port()
        with suppress(OSError), ExitStack() as sockets:
            sockets.enter_context(socket_at(port + 1))
            return port


@contextmanager
def socket_at(port: int) -> Iterator[None]:

    with socket.create_server(("127.0.0.1", port)):
        yield


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("galera")
    script = directory / "wsrep_sst_copied"
    script.write_text(JOINING.replace("{directory}", str(directory)))
    script.chmod(0o700)
    first = Node(directory, 1, peer="")
    nodes = [first, *(Node(directory, number, peer=first.address) for number in (2, 3))]
    with ExitStack() as running:
        running.callback(first.end)
        first.start()
        with django_db_blocker.unblock():
            make_tables(str(first.server.url()))
        first.end()
        for node in nodes[1:]:
            shutil.copytree(first.server.directory, node.server.directory)
            (node.server.directory / "mariadb.sock").unlink(missing_ok=True)
        for node in nodes:
            running.callback(node.end)
            node.start()
        yield Cluster(nodes)


@pytest.fixture
def written_to(cluster: Cluster, transactional_db: None) -> Iterator[Cluster]:
    """The cluster, while this process writes to its first node."""
    with database_at(str(cluster.nodes[0].server.url())):
        yield cluster


@pytest.fixture
def sale(written_to: Cluster) -> SeckillVoucher:
    return make_sale(stock=50)


def test_order_of_a_control_stays_on_no_node(written_to: Cluster, sale: SeckillVoucher) -> None:
    sale.refresh_from_db()
    for further in (1, 2):
        connection.close()  # only the first write of a connection goes to the others
        batch.write_control(
            sale_id=sale.pk,
            fencing_token=sale.fence + further,
            number=sale.batch + further,
            lost=lambda: False,
        )
    written_to.assert_agrees()


def test_orders_are_on_every_node(written_to: Cluster, sale: SeckillVoucher) -> None:
    reserved(sale, make_buyers(20))
    fulfil_sale(sale_id=sale.pk)
    assert VoucherOrder.objects.filter(seckill_voucher=sale).count() == 20
    written_to.assert_agrees()


def test_refused_write_within_a_transaction_is_on_no_node(
    written_to: Cluster, sale: SeckillVoucher
) -> None:
    """A statement that fails as a whole leaves nothing to send, unlike one that is rolled back."""
    buyer, merchant = make_buyers(1)[0], Merchant.objects.create(name="Corner shop")
    sale.voucher.picture = Picture.objects.create(digest="a", content=b"", width=1, height=1)
    sale.voucher.save()
    notice = {"seckill_voucher": sale, "user": buyer, "kind": Notice.Kind.BACK}
    Notice.objects.create(**notice, asked_at=sale.begins_at)
    refused = [
        lambda: Notice.objects.create(**notice, asked_at=sale.begins_at),
        lambda: Merchant(name=merchant.name).save(force_insert=True),
        lambda: drop_unused(digest="a"),
    ]
    for write in refused:
        connection.close()
        with transaction.atomic():
            SeckillVoucher.objects.get(pk=sale.pk)
            with suppress(IntegrityError), transaction.atomic():
                write()
    written_to.assert_agrees()


def test_binary_log_is_asked_for(written_to: Cluster) -> None:
    assert "seckill.E025" in [it.id for it in services.check_database()]


def test_control_rolled_back_first_write_is_on_the_other_nodes(
    written_to: Cluster, sale: SeckillVoucher
) -> None:
    """The last test of the module: the nodes differ after it."""
    connection.close()
    merchants = f"SELECT COUNT(*) FROM seckill.{Merchant._meta.db_table} WHERE name = 'rolled back'"
    with transaction.atomic():
        SeckillVoucher.objects.get(pk=sale.pk)
        before = transaction.savepoint()
        Merchant.objects.create(name="rolled back")
        transaction.savepoint_rollback(before)
    first, *others = written_to.nodes
    wait_for(lambda: all(it.rows(merchants) == [(1,)] for it in others), what="rows that differ")
    assert first.rows(merchants) == [(0,)]
