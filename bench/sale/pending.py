"""Rows e and h: pending entries, the rate at which they become rows, and their memory in Redis.

For row e ``fulfil_sale`` runs in this process, with its real locks. It is compared with the lowest
cost of the rows (multi-row inserts by the bare driver, in transactions of the same size), and with
itself with one order per transaction.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import MySQLdb
from django.conf import settings
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from bench.sale.data import insert_statement, open_sale, reserve_all, strangers, users
from bench.sale.report import Line, Target
from bench.sale.run import Run
from orders.fulfilment.bulk_insert import EVENT_COLUMNS, ORDER_COLUMNS, pay_by
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from orders.placing.tokens import issue_tokens
from orders.receipts.row_copy import ReceiptRow
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import confirm, pending_entries
from vouchers.models import SeckillVoucher

OURS, RAW, SINGLY = "ours", "raw inserts", "one a transaction"
MOST_BYTES = 120
CHUNK = 5_000


# --- Row e ----------------------------------------------------------------------------------------


def measure_commits(run: Run) -> list[Line]:
    plan = run.plan
    user_ids = users(count=plan.written)
    ways: dict[str, Callable[[], float]] = {
        OURS: lambda: write_orders(user_ids),
        RAW: lambda: _raw(user_ids),
        SINGLY: override_settings(SECKILL_BATCH_UNITS=1)(
            lambda: write_orders(user_ids[: plan.written_singly])
        ),
    }
    rates: defaultdict[str, list[float]] = defaultdict(list)
    in_turn = [name for _ in range(plan.repetitions) for name in ways]
    for name in run.steps(in_turn, what="e accepted → committed"):
        rates[name].append(ways[name]())

    def line(against: str, bound: float, note: str) -> Line:
        name, ours, theirs = "accepted → committed rows", rates[OURS], rates[against]
        return Line.ratio("e", name, against, Target(bound), "/s", ours, theirs, note=note)

    return [
        line(RAW, 0.85, f"{settings.SECKILL_BATCH_UNITS} a transaction, both"),
        line(SINGLY, 10, "ours with SECKILL_BATCH_UNITS=1"),
    ]


def write_orders(user_ids: Sequence[int]) -> float:
    """Return rows per second, from pending entries to the confirmation in the ledger."""
    sale = open_sale()
    reserve_all(issue_tokens(sale=sale, user_ids=user_ids))
    began_at = time.perf_counter()
    while fulfil_sale(sale_id=sale.pk):
        pass  # as the next task would continue
    seconds = time.perf_counter() - began_at
    assert VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count() == len(user_ids)
    return len(user_ids) / seconds


def _raw(user_ids: Sequence[int]) -> float:
    """Return rows per second by the driver alone, with rows prepared beforehand."""
    sale = open_sale()
    batches = _batches(sale, user_ids)
    orders = insert_statement(VoucherOrder, ORDER_COLUMNS)
    events = insert_statement(OrderEvent, EVENT_COLUMNS)
    with closing(MySQLdb.connect(**connection.get_connection_params())) as driver:
        began_at = time.perf_counter()
        for of_orders, of_events in batches:
            with driver.cursor() as cursor:
                cursor.executemany(orders, of_orders)  # the driver makes this one statement
                cursor.executemany(events, of_events)
            driver.commit()
        return len(user_ids) / (time.perf_counter() - began_at)


def _batches(
    sale: SeckillVoucher, user_ids: Sequence[int]
) -> list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """Return the rows that the shop would write for these buyers, by transaction."""
    moment = connection.ops.adapt_datetimefield_value
    now = timezone.now()
    at, until, unpaid = moment(now), moment(pay_by(sale, now)), OrderStatus.UNPAID.value
    price = sale.voucher.price_cents
    orders = [
        (it.order_id, it.user_id, sale.pk, 1, unpaid, True, "", price, until, None, at, at, place)
        for place, it in enumerate(issue_tokens(sale=sale, user_ids=user_ids), start=1)
    ]
    event = ("", unpaid, at, "system", None, "", "", None, None, None)
    events = [(order[0], *event) for order in orders]
    size = settings.SECKILL_BATCH_UNITS
    starts = range(0, len(orders), size)
    return [(orders[it : it + size], events[it : it + size]) for it in starts]


# --- Row h ----------------------------------------------------------------------------------------


def measure_memory(run: Run) -> list[Line]:
    held = run.plan.held
    for _ in run.steps([0], what="h memory"):
        sale = open_sale()
        before = used_bytes(sale_id=sale.pk)
        reserve_all(strangers(sale, count=held))
        pending = used_bytes(sale_id=sale.pk) - before
        while entries := pending_entries(sale_id=sale.pk, skip=0, count=CHUNK):
            rows = {}  # the copies that the worker would leave for receipt requests
            for it in entries:
                at_ms = it.accepted_at_ms
                row = ReceiptRow(it.user_id, sale.pk, "unpaid", "", 100, at_ms, at_ms + 900_000)
                rows[it.order_id] = row.pack()
            confirm(sale_id=sale.pk, entries=entries, rows=rows)
        written = used_bytes(sale_id=sale.pk) - before
        ledger_connection().unlink(*LedgerKeys(sale.pk).copies)  # they expire after 30 s
        confirmed = used_bytes(sale_id=sale.pk) - before
    target = Target.most(MOST_BYTES, "bytes")
    note = f"MEMORY USAGE of all keys of a sale of {held:,} buyers"
    just_now = "with its copy, for 30 s"
    return [
        Line("h", "a buyer held, order written", "–", target, [confirmed / held], note=note),
        Line("h", "order pending", "–", None, [pending / held], "bytes", note="the same"),
        Line("h", "order written just now", "–", None, [written / held], "bytes", note=just_now),
    ]


def used_bytes(*, sale_id: int) -> int:
    """Return the memory of a sale's keys, with every element."""
    redis = ledger_connection()
    pattern = LedgerKeys(sale_id).side("*", "").removesuffix(":")
    return sum(redis.memory_usage(key, samples=0) for key in redis.scan_iter(pattern, count=1000))
