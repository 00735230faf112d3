"""Insert new orders: two statements for a batch of any size, without an ORM object per row.

``bulk_create`` spends several times as long on a row as the database (``docs/performance.md``).
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from django.db import connection

from orders.fulfilment.existing_orders import number_list, table_name
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from seckill_site.mysql.overlap import meanwhile
from vouchers.models import SeckillVoucher


def nothing() -> None:
    """Do nothing beside an insert."""


class NewOrder(NamedTuple):
    """The values that differ between new orders; an order with a ``reason`` is refused."""

    id: int
    user_id: int | None
    seckill_voucher_id: int
    unit: int
    reason: str
    accepted_at_ms: int

    @property
    def status(self) -> OrderStatus:
        return OrderStatus.REFUSED if self.reason else OrderStatus.UNPAID

    @property
    def live(self) -> bool | None:
        return None if self.reason else True


ORDER_COLUMNS = (
    "id", "user_id", "seckill_voucher_id", "unit", "status", "live", "reason", "price_cents",
    "pay_by", "code", "accepted_at", "created_at", "position",
)  # fmt: skip
EVENT_COLUMNS = (
    "order_id", "before", "after", "at", "actor_kind", "actor_id", "reason", "code", "values",
    "notified_at", "notify_at",
)  # fmt: skip


def insert_orders(
    *,
    sale: SeckillVoucher,
    orders: Sequence[NewOrder],
    now: dt.datetime,
    positions: Iterable[int | None] = repeat(None),
    beside: Callable[[], object] = nothing,
) -> None:
    """Insert these orders, each with the first event of its history.

    ``positions`` are those in the sale's chain, if they are in one.
    ``beside`` is called while the database inserts the orders; its errors are raised.
    The caller holds the sale's row ``FOR UPDATE`` in the same transaction.

    :raises django.db.IntegrityError: an order breaks a constraint; the caller rolls back.
    """
    # The driver quotes each parameter in Python: values that rows share are quoted once, by name.
    reasons = {order.reason for order in orders}
    names = {reason: f"reason_{number}" for number, reason in enumerate(sorted(reasons))}
    shared: dict[str, int | str] = {
        "sale": sale.pk,
        "price": sale.voucher.price_cents,
        "pay_by": _sql_time(pay_by(sale, now)),
        "now": _sql_time(now),
        "system": SYSTEM.kind.value,
        "unpaid": OrderStatus.UNPAID.value,
        "refused": OrderStatus.REFUSED.value,
        **{name: reason for reason, name in names.items()},
    }
    table, events = table_name(VoucherOrder), table_name(OrderEvent)
    placed = zip(orders, positions, strict=False)
    rows = ",".join([_values(order, names[order.reason], place) for order, place in placed])
    ids = number_list(order.id for order in orders)
    with connection.cursor() as cursor:
        with meanwhile(beside):
            cursor.execute(f"INSERT INTO {table} ({_quoted(ORDER_COLUMNS)}) VALUES {rows}", shared)
        cursor.execute(
            f"INSERT INTO {events} ({_quoted(EVENT_COLUMNS)}) "
            "SELECT id, '', status, %(now)s, %(system)s, NULL, '', '', NULL, NULL, NULL "
            f"FROM {table} WHERE id IN ({ids})",
            shared,
        )


def pay_by(sale: SeckillVoucher, now: dt.datetime) -> dt.datetime:
    """Return the payment deadline of an order that is created in this sale now."""
    return now + dt.timedelta(seconds=sale.pay_within_s)


def _values(order: NewOrder, reason: str, position: int | None) -> str:
    """Return a row's values; ``reason`` is the name of the parameter that holds it."""
    user = "NULL" if order.user_id is None else f"{order.user_id:d}"
    status_and_live = "%(refused)s,NULL" if order.reason else "%(unpaid)s,1"
    second, ms = divmod(order.accepted_at_ms, 1000)
    return (
        f"({order.id:d},{user},%(sale)s,{order.unit:d},{status_and_live},%({reason})s,%(price)s,"
        f"%(pay_by)s,NULL,'{_sql_second(second)}.{ms:03d}000',%(now)s,{position or 'NULL'})"
    )


def _sql_time(when: dt.datetime) -> str:
    """Return a time as text in UTC, which both databases accept."""
    return when.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


@lru_cache(maxsize=64)  # a batch was accepted within a few seconds
def _sql_second(epoch_s: int) -> str:
    return dt.datetime.fromtimestamp(epoch_s, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(map(connection.ops.quote_name, columns))
