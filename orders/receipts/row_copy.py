"""The columns of an order that its receipt needs, read without the ORM, and their copy in Redis.

Building the query costs the ORM several times what the database takes to answer
(``docs/performance.md``). ``vouchers/inventory/receipt_cache.py`` keeps the copies.
"""

import datetime as dt
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Self

from django.db import connection

from orders.models import OrderStatus, Payment, VoucherOrder
from seckill_site.clocks.machine import MILLISECOND, epoch_ms

_COLUMNS = (
    "user_id", "seckill_voucher_id", "status", "reason", "price_cents", "accepted_at", "created_at",
    "pay_by",
)  # fmt: skip

KEPT_STATUSES = (OrderStatus.UNPAID, OrderStatus.REFUSED)
"""The copied statuses: a crowd asks for them after a sale, and they reveal no code and no money."""


class ReceiptRow(NamedTuple):
    """The receipt's part of an unpaid or refused order; times in milliseconds since 1970."""

    user_id: int | None
    sale_id: int
    status: str
    reason: str
    price_cents: int
    accepted_at_ms: int
    pay_by_ms: int | None
    has_returned: bool = False
    """The buyer came back from a provider's page. Such a row is not copied."""
    is_extended: bool = False
    """The buyer took more time to pay. Such a row is not copied either."""

    def pack(self) -> str:
        """Return the row as text for the copy in Redis."""
        user_id, sale_id, status, reason, price, accepted_at, pay_by, *_ = self
        user, until = "" if user_id is None else user_id, "" if pay_by is None else pay_by
        return f"{user}:{sale_id}:{status}:{reason}:{price}:{accepted_at}:{until}"

    @classmethod
    def of(cls, order: VoucherOrder) -> Self:
        row = cls.from_columns([getattr(order, column) for column in _COLUMNS])
        return row._replace(is_extended=order.extended_at is not None)

    @classmethod
    def from_columns(cls, columns: Sequence[Any]) -> Self:
        user_id, sale_id, status, reason, price_cents, accepted_at, created_at, pay_by = columns
        until_ms = pay_by_ms(accepted_at, created_at, pay_by) if pay_by else None
        return cls(user_id, sale_id, status, reason, price_cents, _utc_ms(accepted_at), until_ms)

    @classmethod
    def unpack(cls, text: str) -> Self:
        """Return the row that a copy's text holds.

        :raises ValueError: the text is not a copy.
        """
        user_id, sale_id, status, reason, price, accepted_at, pay_by = text.split(":")
        return cls(
            user_id=int(user_id) if user_id else None,
            sale_id=int(sale_id),
            status=status,
            reason=reason,
            price_cents=int(price),
            accepted_at_ms=int(accepted_at),
            pay_by_ms=int(pay_by) if pay_by else None,
        )


def pay_by_ms(accepted_at: dt.datetime, created_at: dt.datetime, pay_by: dt.datetime) -> int:
    """Return when the time to pay is over, for pages, which go by the clock of Redis.

    An order that was written late has its time from then on, by the clock of the database. If that
    clock is behind, the time counts from when Redis accepted the order.
    """
    return max(_utc_ms(pay_by), _utc_ms(accepted_at) + (pay_by - created_at) // MILLISECOND)


def read_receipt_row(*, order_id: int) -> ReceiptRow | None:
    """Return the row of an order, or None if it does not exist."""
    with connection.cursor() as cursor:
        cursor.execute(_select(connection.vendor), [order_id])
        row = cursor.fetchone()
    if row is None:
        return None
    *columns, has_returned, extended_at = row
    return ReceiptRow.from_columns(columns)._replace(
        has_returned=bool(has_returned), is_extended=extended_at is not None
    )


@cache
def _select(vendor: str) -> str:
    quoted = connection.ops.quote_name
    columns = ", ".join(map(quoted, _COLUMNS))
    orders, payments = (quoted(it._meta.db_table) for it in (VoucherOrder, Payment))
    returned = f"SELECT 1 FROM {payments} WHERE order_id = {orders}.id AND returned_at IS NOT NULL"
    return f"SELECT {columns}, EXISTS ({returned}), extended_at FROM {orders} WHERE id = %s"


def _utc_ms(stored: dt.datetime) -> int:
    # Without the ORM, MariaDB's driver returns times without a zone.
    return epoch_ms(stored if stored.tzinfo else stored.replace(tzinfo=dt.UTC))
