"""The row behind a receipt that a whole crowd asks for, read by one statement and without the ORM.

Putting a query together costs the ORM several times what the database takes for the answer
(``docs/performance.md``).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cache

from django.db import connection

from orders.models import VoucherOrder

_COLUMNS = (
    "user_id", "seckill_voucher_id", "status", "reason", "price_cents", "accepted_at", "pay_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """What an unpaid or refused order's receipt says; times are aware."""

    user_id: int | None
    sale_id: int
    status: str
    reason: str
    price_cents: int
    accepted_at: dt.datetime
    pay_by: dt.datetime | None


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
        accepted_at=_aware(accepted_at),
        pay_by=_aware(pay_by) if pay_by else None,
    )


@cache
def _select(vendor: str) -> str:
    quoted = connection.ops.quote_name
    columns = ", ".join(map(quoted, _COLUMNS))
    return f"SELECT {columns} FROM {quoted(VoucherOrder._meta.db_table)} WHERE id = %s"


def _aware(stored: dt.datetime) -> dt.datetime:
    return stored.replace(tzinfo=dt.UTC)
