"""What the database knows of a batch's ids and buyers: three statements, without the ORM.

The ORM takes longer to write a statement of hundreds of ids than the database to answer it
(``docs/performance.md``), and all the while the sale's row is locked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Model

from orders.models import VoucherOrder


class KnownOrder(NamedTuple):
    """An order that has its row; ``live`` is 1 or None, as in the table."""

    id: int
    user_id: int | None
    seckill_voucher_id: int
    unit: int
    status: str
    live: int | None
    reason: str


def orders_by_id(*, order_ids: Iterable[int]) -> list[KnownOrder]:
    """Return those of these orders that there are, whosesoever they are."""
    return _orders(f"id IN ({numbers(order_ids)})")


def orders_of_buyers(*, sale_id: int, user_ids: Iterable[int], only_live: bool) -> list[KnownOrder]:
    """Return what these buyers have, or have had, of a sale."""
    where = f"seckill_voucher_id = {sale_id:d} AND user_id IN ({numbers(user_ids)})"
    return _orders(where + (" AND live = 1" if only_live else ""))


def are_active(*, user_ids: Iterable[int]) -> dict[int, bool]:
    """Return for those of these users that there are whether they are active."""
    users = table(get_user_model())
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, is_active FROM {users} WHERE id IN ({numbers(user_ids)})")
        return {user_id: bool(active) for user_id, active in cursor.fetchall()}


def _orders(where: str) -> list[KnownOrder]:
    columns = ", ".join(map(connection.ops.quote_name, KnownOrder._fields))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table(VoucherOrder)} WHERE {where}")
        return [KnownOrder(*row) for row in cursor.fetchall()]


def numbers(values: Iterable[int]) -> str:
    """Return numbers as they stand in a statement; whatever is none raises.

    As parameters the driver would take them one by one, in Python.
    """
    return ",".join([f"{value:d}" for value in values])


def table(model: type[Model]) -> str:
    """Return the quoted name of a model's table."""
    return connection.ops.quote_name(model._meta.db_table)
