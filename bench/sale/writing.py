"""Row e: how fast accepted entries become committed rows, by the worker's own function.

``fulfill_sale`` runs in this process, with its real locks, against the least that the rows can
cost: multi-row inserts by the bare driver, in transactions of the same size. And against itself
with one order in each transaction.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from bench.sale.course import Course
from bench.sale.figures import Line, Target, ratios
from bench.sale.shop import open_sale, reserve_all, users
from orders.fulfilment.bulk_insert import EVENT_COLUMNS, ORDER_COLUMNS, pay_by
from orders.fulfilment.worker import fulfill_sale
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from orders.placing.tokens import issue_tokens
from vouchers.models import SeckillVoucher

OURS, RAW, SINGLY = "ours", "raw inserts", "one a transaction"


def measure(course: Course) -> list[Line]:
    plan = course.plan
    user_ids = users(count=plan.written)
    ways: dict[str, Callable[[], float]] = {
        OURS: lambda: _ours(user_ids),
        RAW: lambda: _raw(user_ids),
        SINGLY: lambda: _singly(user_ids[: plan.written_singly]),
    }
    rates: defaultdict[str, list[float]] = defaultdict(list)
    in_turn = [name for _ in range(plan.repetitions) for name in ways]
    for name in course.steps(in_turn, what="e accepted → committed"):
        rates[name].append(ways[name]())
    return [
        _line(rates, RAW, 0.5, f"{settings.SECKILL_BATCH_UNITS} a transaction, both"),
        _line(rates, SINGLY, 10, "ours with SECKILL_BATCH_UNITS=1"),
    ]


def _line(rates: dict[str, list[float]], against: str, bound: float, note: str) -> Line:
    return Line(
        row="e",
        name="accepted → committed rows",
        against=against,
        target=Target(bound),
        values=ratios(rates[OURS], rates[against]),
        unit="/s",
        ours=rates[OURS],
        theirs=rates[against],
        note=note,
    )


def _ours(user_ids: Sequence[int]) -> float:
    """Return rows per second from pending entries to rows, the ledger told."""
    sale = open_sale()
    reserve_all(issue_tokens(sale=sale, user_ids=user_ids))
    began_at = time.perf_counter()
    while fulfill_sale(sale_id=sale.pk):
        pass  # as a fresh task would go on
    seconds = time.perf_counter() - began_at
    assert VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count() == len(user_ids)
    return len(user_ids) / seconds


def _singly(user_ids: Sequence[int]) -> float:
    with override_settings(SECKILL_BATCH_UNITS=1):
        return _ours(user_ids)


def _raw(user_ids: Sequence[int]) -> float:
    """Return rows per second by the driver alone; what is inserted is made before."""
    sale = open_sale()
    batches = _batches(sale, user_ids)
    orders, events = _insert(VoucherOrder, ORDER_COLUMNS), _insert(OrderEvent, EVENT_COLUMNS)
    connection.ensure_connection()
    driver = connection.Database.connect(**connection.get_connection_params())
    try:
        began_at = time.perf_counter()
        for of_orders, of_events in batches:
            with driver.cursor() as cursor:
                cursor.executemany(orders, of_orders)  # which makes one statement of the rows
                cursor.executemany(events, of_events)
            driver.commit()
        return len(user_ids) / (time.perf_counter() - began_at)
    finally:
        driver.close()


def _batches(
    sale: SeckillVoucher, user_ids: Sequence[int]
) -> list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """Return the rows that the shop would write for these buyers, by transaction."""
    moment = connection.ops.adapt_datetimefield_value
    now = timezone.now()
    at, until, unpaid = moment(now), moment(pay_by(sale, now)), OrderStatus.UNPAID.value
    price = sale.voucher.price_cents
    orders = [
        (it.order_id, it.user_id, sale.pk, 1, unpaid, True, "", price, until, None, at, at)
        for it in issue_tokens(sale=sale, user_ids=user_ids)
    ]
    events = [(order[0], "", unpaid, at, "system", None, "", None, None) for order in orders]
    size = settings.SECKILL_BATCH_UNITS
    starts = range(0, len(orders), size)
    return [(orders[it : it + size], events[it : it + size]) for it in starts]


def _insert(model: type[VoucherOrder] | type[OrderEvent], columns: Sequence[str]) -> str:
    names = ", ".join(f"`{column}`" for column in columns)
    marks = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO {model._meta.db_table} ({names}) VALUES ({marks})"
