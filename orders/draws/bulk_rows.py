"""Insert the rows of a draw, thousands in a statement, without an ORM object per row.

``bulk_create`` spends several times as long on a row as the database.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection
from django.db.models import Model
from django.db.models.constants import OnConflict

from orders.models import DrawEntry, WaitingEntry
from vouchers.inventory.draw_entries import Entry

AT_ONCE = 5_000
"""The rows of one statement."""

_EPOCH = dt.datetime(1970, 1, 1)

ENTRY_COLUMNS = ("order_id", "user_id", "seckill_voucher_id", "entered_at", "live", "outcome")
WAITING_COLUMNS = ("order_id", "user_id", "seckill_voucher_id", "joined_at", "live", "outcome")


def insert_entries(
    *, sale_id: int, entries: Iterable[Entry], known_users: set[int], outcome: str
) -> None:
    """Insert rows for these entries; skip ids that have a row, and second live entries of a buyer.

    With an ``outcome``, they are not in the list.
    """
    live = "NULL" if outcome else "1"
    rows = [
        f"({it.order_id:d},{it.user_id if it.user_id in known_users else 'NULL'},{sale_id:d},"
        f"{_time(it.entered_at_ms)},{live},%(outcome)s)"
        for it in entries
    ]
    _insert(DrawEntry, ENTRY_COLUMNS, rows, outcome=outcome)


def insert_waiting(*, sale_id: int, losers: Iterable[tuple[int, int, int]]) -> None:
    """Put order ids and users on the waiting list, with when they joined in ms since 1970.

    An order id or user that waits already stays as it is.
    """
    rows = [
        f"({order_id:d},{user_id:d},{sale_id:d},{_time(joined_ms)},1,%(outcome)s)"
        for order_id, user_id, joined_ms in losers
    ]
    _insert(WaitingEntry, WAITING_COLUMNS, rows, outcome="")


def _time(ms: int) -> str:
    return f"'{_EPOCH + dt.timedelta(milliseconds=ms)!s}'"


def _insert(
    model: type[Model], columns: Sequence[str], rows: Sequence[str], **parameters: Any
) -> None:
    quote = connection.ops.quote_name
    verb = connection.ops.insert_statement(on_conflict=OnConflict.IGNORE)
    start = f"{verb} {quote(model._meta.db_table)} ({', '.join(map(quote, columns))}) VALUES "
    with connection.cursor() as cursor:
        for first in range(0, len(rows), AT_ONCE):
            cursor.execute(start + ",".join(rows[first : first + AT_ONCE]), parameters)
