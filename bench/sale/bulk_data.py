"""Bulk data: fill a shop to a size, as a program with that shop's settings, for row g.

Usage: ``python -m bench.sale.bulk_data BUYERS SALES ORDERS REQUESTS FILE``, FILE being where it
writes, as JSON, the requests that the shop can answer. Tables and ledger look as if the shop had
filled them, except that its users have no rows of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import MySQLdb
from django.db import connection
from django.utils import timezone

from bench.sale.data import MOST_UNITS, insert_statement, open_sale, strangers, users
from bench.sale.plan import Size
from orders.fulfilment.bulk_insert import ORDER_COLUMNS
from orders.models import OrderStatus, VoucherOrder
from orders.placing.tokens import PurchaseToken
from seckill_site.clock import epoch_ms
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

FIRST_ORDER_ID = 1 << 32
OTHER_BUYERS_FROM = 100_000_000
CHUNK = 5_000


def fill(size: Size, *, requests: int) -> dict[str, Any]:
    """Make sales, their orders and the buyers of one sale; return what can be asked of it."""
    sales = [open_sale() for _ in range(size.sales)]
    user_ids = users(count=-(-size.orders // len(sales)))
    pairs = ((user_id, sale.pk) for user_id in user_ids for sale in sales)
    orders = [(FIRST_ORDER_ID + n, *of) for n, of in zip(range(size.orders), pairs, strict=False)]
    _insert(orders)
    crowded = sales[len(sales) // 2]
    # A sale has at most a million units, so the requests are from the last of a million buyers.
    _hold(crowded, count=min(size.buyers, MOST_UNITS - requests))
    every = max(1, len(orders) // requests)
    ends_at_ms = epoch_ms(crowded.ends_at)
    tokens = [PurchaseToken(*order, ends_at_ms) for order in orders[::every][:requests]]
    return {
        "sale_id": crowded.pk,
        "reserve": [token.sign() for token in strangers(crowded, count=requests)],
        "receipts": [(token.sale_id, token.order_id, token.sign()) for token in tokens],
    }


def _insert(orders: Sequence[tuple[int, int, int]]) -> None:
    at = connection.ops.adapt_datetimefield_value(timezone.now())
    rest = (1, OrderStatus.UNPAID.value, True, "", 100, at, None, at, at)
    statement = insert_statement(VoucherOrder, ORDER_COLUMNS)
    with connection.cursor() as cursor:
        for start in range(0, len(orders), CHUNK):
            rows = [(*order, *rest) for order in orders[start : start + CHUNK]]
            cursor.executemany(statement, rows)
        cursor.execute(f"ANALYZE TABLE {VoucherOrder._meta.db_table}")
        cursor.fetchall()


def _hold(sale: SeckillVoucher, *, count: int) -> None:
    """Put buyers into a ledger, as after their orders were written."""
    key = LedgerKeys(sale.pk).buyers
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        held = {f"{OTHER_BUYERS_FROM + n}:1": FIRST_ORDER_ID + n for n in numbers}
        ledger_connection().hset(key, mapping=held)


def copy_tables(model_database: str) -> None:
    """Create the database of the settings, with the empty tables of another one."""
    parameters = connection.get_connection_params()
    name = parameters.pop("database")
    with MySQLdb.connect(**parameters) as server, server.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        cursor.execute(f"SHOW TABLES FROM `{model_database}`")
        tables = [table for (table,) in cursor.fetchall()]
        cursor.execute(f"USE `{name}`")
        cursor.execute("SET FOREIGN_KEY_CHECKS = 0")  # a table may name one that comes later
        for table in tables:
            cursor.execute(f"SHOW CREATE TABLE `{model_database}`.`{table}`")
            cursor.execute(cursor.fetchone()[1])


def main(arguments: Sequence[str]) -> None:
    buyers, sales, orders, requests = map(int, arguments[:4])
    copy_tables(os.environ["BENCH_MODEL_DATABASE"])
    filled = fill(Size(buyers, sales, orders), requests=requests)
    Path(arguments[4]).write_text(json.dumps(filled))


if __name__ == "__main__":
    main(sys.argv[1:])
