"""The row behind a receipt that a whole crowd asks for, read by one statement and without the ORM.

Putting a query together costs the ORM several times what the database takes for the answer
(``docs/performance.md``). Redis may hold a copy of a row (``vouchers/inventory/receipt_cache.py``).
"""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import NamedTuple, Self

from django.db import connection

from orders.models import OrderStatus, VoucherOrder
from seckill_site.clock import epoch_ms

_COLUMNS = (
    "user_id", "seckill_voucher_id", "status", "reason", "price_cents", "accepted_at", "pay_by",
)  # fmt: skip

KEPT_STATUSES = (OrderStatus.UNPAID, OrderStatus.REFUSED)
"""What a crowd asks for after a sale, and of which copies are kept. Receipts of these states say
nothing of a code or of money."""


class ReceiptRow(NamedTuple):
    """What an unpaid or refused order's receipt says; times are in milliseconds since 1970."""

    user_id: int | None
    sale_id: int
    status: str
    reason: str
    price_cents: int
    accepted_at_ms: int
    pay_by_ms: int | None

    def pack(self) -> str:
        """Return it as the text of its copy."""
        user_id, sale_id, status, reason, price, accepted_at, pay_by = self
        user, until = "" if user_id is None else user_id, "" if pay_by is None else pay_by
        return f"{user}:{sale_id}:{status}:{reason}:{price}:{accepted_at}:{until}"

    @classmethod
    def unpack(cls, text: str) -> Self:
        """Read the text of a copy.

        :raises ValueError: it is none.
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


def read_receipt_row(*, order_id: int) -> ReceiptRow | None:
    """Return the row of an order, or None where there is none."""
    with connection.cursor() as cursor:
        cursor.execute(_select(connection.vendor), [order_id])
        found = cursor.fetchone()
    if found is None:
        return None
    user_id, sale_id, status, reason, price_cents, accepted_at, pay_by = found
    return ReceiptRow(
        user_id=user_id,
        sale_id=sale_id,
        status=status,
        reason=reason,
        price_cents=price_cents,
        accepted_at_ms=epoch_ms(_aware(accepted_at)),
        pay_by_ms=epoch_ms(_aware(pay_by)) if pay_by else None,
    )


@cache
def _select(vendor: str) -> str:
    quoted = connection.ops.quote_name
    columns = ", ".join(map(quoted, _COLUMNS))
    return f"SELECT {columns} FROM {quoted(VoucherOrder._meta.db_table)} WHERE id = %s"


def _aware(stored: dt.datetime) -> dt.datetime:
    return stored.replace(tzinfo=dt.UTC)
