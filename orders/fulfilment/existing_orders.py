"""The existing orders and buyers of a batch, read in three statements without the ORM.

The ORM takes longer to build a statement with hundreds of ids than the database takes to answer it
(``docs/performance.md``), and the sale's row is locked meanwhile.
"""

from collections.abc import Iterable
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Model

from orders.models import VoucherOrder


class ExistingOrder(NamedTuple):
    """An order with a row; ``live`` is 1 or None, as in the table."""

    id: int
    user_id: int | None
    seckill_voucher_id: int
    unit: int
    status: str
    live: int | None
    reason: str


def orders_by_id(*, order_ids: Iterable[int]) -> list[ExistingOrder]:
    """Return the existing orders among these ids, regardless of owner."""
    return _select_orders(f"id IN ({number_list(order_ids)})")


def orders_of_buyers(
    *, sale_id: int, user_ids: Iterable[int], only_live: bool
) -> list[ExistingOrder]:
    """Return these buyers' present and past orders in a sale, or only the live ones."""
    where = f"seckill_voucher_id = {sale_id:d} AND user_id IN ({number_list(user_ids)})"
    return _select_orders(where + (" AND live = 1" if only_live else ""))


def active_flags(*, user_ids: Iterable[int]) -> dict[int, bool]:
    """Return whether each user is active; users that do not exist are left out."""
    users = table_name(get_user_model())
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, is_active FROM {users} WHERE id IN ({number_list(user_ids)})")
        return {user_id: bool(active) for user_id, active in cursor.fetchall()}


def _select_orders(where: str) -> list[ExistingOrder]:
    columns = ", ".join(map(connection.ops.quote_name, ExistingOrder._fields))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table_name(VoucherOrder)} WHERE {where}")
        return [ExistingOrder(*row) for row in cursor.fetchall()]


def number_list(values: Iterable[int]) -> str:
    """Return integers as SQL text; anything else raises.

    As parameters they would be quoted one by one, in Python.
    """
    return ",".join([f"{value:d}" for value in values])


def table_name(model: type[Model]) -> str:
    """Return the quoted name of a model's table."""
    return connection.ops.quote_name(model._meta.db_table)
