"""Guards of the course: what each costs in a crowd, and what InnoDB locks for a statement."""

import re
from collections.abc import Iterator

from django.db import connection, transaction
from django.utils.translation import gettext_noop

from bench.around.measuring import sql
from lab.crowd.crowd import Crowd
from lab.crowd.faults import Fault
from lab.crowd.stage import CrowdStage
from lab.engine.fork_server import ForkServer
from lab.experiments.experiment import Row
from lab.models import LabOrder, LabSale
from lab.steps import STEPS

GUARDS = (
    *("v1-as-read", "v1-version", "v1-retry", "v1-any-left", "v1-for-update"),
    *("v2", "v3", "v3-one-lock"),
)
CROWD = Crowd(buyers=600, stock=500, clicks=1)

LEVELS = ("READ COMMITTED", "REPEATABLE READ")
STATEMENTS = {
    gettext_noop("sale by its key"): "SELECT * FROM lab_labsale WHERE id = {} FOR UPDATE",
    gettext_noop("sale by a search"): "SELECT * FROM lab_labsale WHERE id + 0 = {} FOR UPDATE",
    gettext_noop("conditional UPDATE"): (
        "UPDATE lab_labsale SET stock = stock - 1 WHERE id = {} AND stock > 0"
    ),
    gettext_noop("order that does not exist"): (
        "SELECT * FROM lab_laborder WHERE sale_id = {} AND user_id = 1 FOR UPDATE"
    ),
}
SALES = 10


def sell(crowd: Crowd = CROWD) -> Iterator[Row]:
    """Sell with each guard; the server counts the UPDATEs."""
    with ForkServer() as server:
        for name in GUARDS:
            before = _updates()
            with CrowdStage(STEPS[name], server, crowd=crowd, fault=Fault.NONE) as stage:
                it = stage.run()
            tries = (_updates() - before) / it.sold
            yield name, it.sold, it.turned_away, tries, it.orders_per_s, it.p99_ms


def _updates() -> int:
    return int(sql("SHOW GLOBAL STATUS LIKE 'Com_update'")[0][1])


def lock() -> Iterator[Row]:
    """Let each statement lock something among some sales with an order each."""
    sales = [LabSale.objects.create(step="locks", offered=1, stock=1) for _number in range(SALES)]
    LabOrder.objects.bulk_create(LabOrder(sale=sale, user_id=2) for sale in sales)
    try:
        for name, statement in STATEMENTS.items():
            for level in LEVELS:
                yield name, level, *_locked_by(statement.format(sales[SALES // 2].pk), level)
    finally:
        LabSale.objects.filter(step="locks").delete()


def _locked_by(statement: str, level: str) -> tuple[int, int]:
    """Return the index records and the gaps between them that a statement locks."""
    sql(f"SET TRANSACTION ISOLATION LEVEL {level}")  # of the next one
    with transaction.atomic():
        sql(statement)
        status = sql("SHOW ENGINE INNODB STATUS")[0][2]
        transaction.set_rollback(True)
    own = rf"thread id {connection.connection.thread_id()},.*?(?=\n---|$)"
    records = gaps = 0
    for each in re.findall(own, status, re.DOTALL)[0].split("RECORD LOCKS")[1:]:
        entries = each.count("Record lock,")
        if "locks gap before rec" not in each:
            records += entries - each.count("supremum")  # the end of an index is only a gap
        if "locks rec but not gap" not in each:
            gaps += entries
    return records, gaps
