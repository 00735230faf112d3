"""A cluster of three Galera nodes: what the shop writes to one of them is on all, and nothing else.

MariaDB 10.11 without a binary log, as Debian installs it, sends rows to the other nodes that were
rolled back to a savepoint, if the connection had changed nothing before. The next such row is
refused there as a duplicate, the nodes vote, and the one that wrote leaves the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from orders.fulfilment import batch
from orders.fulfilment.worker import fulfil_sale
from orders.models import Notice, VoucherOrder
from seckill_site.checks import services
from tests.concurrency.sales import make_sale
from tests.faults.galera import PROVIDER, Cluster, running_cluster
from tests.faults.private import database_at
from tests.support.orders import make_buyers, reserved
from tests.support.patience import wait_for
from vouchers.catalogue.pictures import drop_unused
from vouchers.models import Merchant, Picture, SeckillVoucher

pytestmark = [
    pytest.mark.faults,
    pytest.mark.usefixtures("row_locks"),
    pytest.mark.skipif(not PROVIDER.exists(), reason="apt-get install galera-4"),
]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        with django_db_blocker.unblock():
            running = running_cluster(tmp_path_factory.mktemp("galera"), binary_log=False)
            nodes = stack.enter_context(running)
        yield nodes


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
