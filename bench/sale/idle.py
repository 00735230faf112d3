"""Row t: the whole shop while nothing happens, as ``deploy/`` starts it on one machine.

Empty or full, its processes start anew and settle for longer than beat waits before it slows down.
The kernel counts their processor time, as ``schedstat`` shows it too, and how often their threads
woke up.

As a program it fills the empty shop of its settings: ``python -m bench.sale.idle SALES ORDERS``.
"""

import datetime as dt
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice, product

from django.db import connection
from django.utils import timezone
from redis import Redis
from servers import BEHIND, granian

from bench.around.measuring import sql
from bench.processes import cpu_spent, family_of, wake_ups
from bench.sale.data import CHUNK, FIRST_ORDER_ID, insert_statement, open_sale, users
from bench.sale.plan import WORKERS
from bench.sale.report import Line, Target
from bench.sale.run import ROOT, Run, Site, another, celery_part, serving
from orders.fulfilment.bulk_insert import ORDER_COLUMNS
from orders.models import LIVE_STATUSES, OrderEvent, OrderStatus, Payment, VoucherOrder
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.models import MAX_LIMIT, SeckillVoucher

SITE_NUMBER = 3
MOST_EMPTY, MOST_FULL = 1.5, 2.0
"""Percent of a core."""

STATES = (
    *[OrderStatus.PAID] * 12,
    *[OrderStatus.USED] * 4,
    *(OrderStatus.UNPAID, OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUNDED),
)
"""The states of twenty orders."""


def measure(run: Run) -> list[Line]:
    plan, site = run.plan, another(SITE_NUMBER)
    full = f"{plan.idle_sales} open sales and {plan.idle_orders:,} orders"
    lines = []
    for what, most in run.steps([("empty", MOST_EMPTY), (full, MOST_FULL)], what="t an idle shop"):
        if most == MOST_FULL:
            numbers = [str(plan.idle_sales), str(plan.idle_orders)]
            command = [sys.executable, "-m", "bench.sale.idle", *numbers]
            subprocess.run(command, cwd=ROOT, env=site.environ, check=True)
        with _shop(site) as parts:
            percent, note = _watch(run, parts)
        target = Target.most(most, "% of a core")
        lines.append(Line("t", f"an idle shop: {what}", "–", target, [percent], note=note))
    _remove(site)
    return lines


@contextmanager
def _shop(site: Site) -> Iterator[dict[str, Sequence[int]]]:
    """Run the units of ``deploy/``; yield the wrappers of their processes by what these do."""

    def command(port: int) -> list[str]:
        return granian("127.0.0.1", port, "--respawn-failed-workers", workers=WORKERS)

    with ExitStack() as stack:
        web = partial(serving, site, command=command, workers=WORKERS)
        webs = [web("web-idle"), web("web-idle-rest", options=BEHIND)]
        workers = [celery_part(site, "worker")]
        workers += [celery_part(site, it, "--concurrency", "2") for it in ("payments", "webhooks")]
        yield {
            "web": [stack.enter_context(it).pids[0] for it in webs],
            "workers": [stack.enter_context(it)[0] for it in workers],
            "beat": [stack.enter_context(celery_part(site, "beat"))[0]],
        }


def _watch(run: Run, wrappers: dict[str, Sequence[int]]) -> tuple[float, str]:
    """Return the percentage of a core, and what it consists of."""
    time.sleep(run.plan.idle_settle_s)
    parts: dict[str, Sequence[int]] = {
        name: [pid for it in of for pid in family_of(it)[1:]]  # without the wrapper
        for name, of in wrappers.items()
    }
    _, parts["Redis"], parts["MariaDB"] = run.parts(run.web)
    pids = [pid for of in parts.values() for pid in of]
    before, began = wake_ups(pids), time.monotonic()
    with cpu_spent(*parts.values()) as spent_s:
        time.sleep(run.plan.idle_s)
        seconds, woken = time.monotonic() - began, (wake_ups(pids) - before).total()
    shares = [f"{name} {100 * it / seconds:.2f}" for name, it in zip(parts, spent_s, strict=True)]
    note = f"{', '.join(shares)}; {woken / seconds:.0f} wake-ups a second"
    return 100 * sum(spent_s) / seconds, note


def _remove(site: Site) -> None:
    """Let go of the orders, so that they change no other row."""
    sql(f"DROP DATABASE test_{site.number}")
    for name in ("REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL"):
        with Redis.from_url(site.environ[name]) as redis:
            redis.flushdb()


# --- A full shop ----------------------------------------------------------------------------------


def fill(*, sales: int, orders: int) -> None:
    """Make open sales, the first of which is the largest, and their orders in all states."""
    sizes = [max(1, round(orders / (n * _harmonic(sales)))) for n in range(1, sales + 1)]
    user_ids = users(count=-(-sizes[0] // MAX_LIMIT))
    first = FIRST_ORDER_ID
    for size in sizes:
        _fill_sale(open_sale(limit=MAX_LIMIT), size, user_ids, first)
        first += size
    events = "order_id, `before`, after, at, actor_kind, reason, notified_at"
    values = "id, 'unpaid', status, created_at, 'system', '', created_at"
    _copy_orders(OrderEvent._meta.db_table, events, values)
    payments = "order_id, reference, provider, provider_reference, amount_cents, status, settles"
    values = "id, CONCAT('idle-', id), 'sandbox', '', 100, IF(live, 'paid', 'refunded'), 1"
    payments += ", pay_url, problem, asked, created_at, paid_at, changed_at"
    values += ", '', '', 0, created_at, created_at, created_at"
    paid = "status IN ('paid', 'used', 'refunded')"
    _copy_orders(Payment._meta.db_table, payments, values, also=paid)


def _harmonic(count: int) -> float:
    return sum(1 / n for n in range(1, count + 1))


def _fill_sale(sale: SeckillVoucher, size: int, user_ids: Sequence[int], first: int) -> None:
    now = timezone.now()
    at, pay_by = map(connection.ops.adapt_datetimefield_value, (now, now + dt.timedelta(hours=1)))
    units = islice(product(user_ids, range(1, MAX_LIMIT + 1)), size)
    rows, sold = [], 0
    for number, (user_id, unit) in enumerate(units):
        status = STATES[number % len(STATES)]
        live = True if status in LIVE_STATUSES else None
        sold += bool(live)
        order = (first + number, user_id, sale.pk, unit, status.value, live)
        rows.append((*order, "", 100, pay_by, None, at, at, None))
    with connection.cursor() as cursor:
        statement = insert_statement(VoucherOrder, ORDER_COLUMNS)
        for start in range(0, len(rows), CHUNK):
            cursor.executemany(statement, rows[start : start + CHUNK])
    SeckillVoucher.objects.filter(pk=sale.pk).update(sold=sold)
    rebuild_sale(sale_id=sale.pk)


def _copy_orders(table: str, columns: str, values: str, *, also: str = "TRUE") -> None:
    """Insert a row for each order that fulfils a condition, with values from it."""
    orders = VoucherOrder._meta.db_table
    (last,) = sql(f"SELECT MAX(id) FROM {orders}")[0]
    for first in range(FIRST_ORDER_ID, last + 1, CHUNK):
        sql(
            f"INSERT INTO {table} ({columns}) SELECT {values} FROM {orders} "
            f"WHERE id BETWEEN {first} AND {first + CHUNK - 1} AND {also}"
        )
    sql(f"ANALYZE TABLE {table}")


if __name__ == "__main__":
    fill(sales=int(sys.argv[1]), orders=int(sys.argv[2]))
