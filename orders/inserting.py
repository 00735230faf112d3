"""New orders into the tables: two statements a batch, whatever its size, and no ORM object a row.

``bulk_create`` spends several times as long on a row as the database (``docs/performance.md``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from orders.life import SYSTEM
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from vouchers.models import SeckillVoucher


@dataclass(frozen=True, slots=True)
class NewOrder:
    """What is particular to one new order; ``reason`` is empty unless it is refused."""

    id: int
    user_id: int | None
    seckill_voucher_id: int
    unit: int
    reason: str
    accepted_at: dt.datetime

    @property
    def status(self) -> OrderStatus:
        return OrderStatus.REFUSED if self.reason else OrderStatus.UNPAID

    @property
    def live(self) -> bool | None:
        return None if self.reason else True


ORDER_COLUMNS = (
    "id", "user_id", "seckill_voucher_id", "unit", "status", "live", "reason", "price_cents",
    "pay_by", "code", "accepted_at", "created_at",
)  # fmt: skip
EVENT_COLUMNS = (
    "order_id", "before", "after", "at", "actor_kind", "actor_id", "reason", "told_at", "tell_at",
)  # fmt: skip


def insert_orders(*, sale: SeckillVoucher, orders: Sequence[NewOrder], now: dt.datetime) -> None:
    """Insert these orders and the beginning of each one's history.

    The caller holds the sale's row ``FOR UPDATE`` in the transaction that this is part of.

    :raises django.db.IntegrityError: one of them breaks a rule of the table; nothing was inserted
        that the transaction, rolled back, would keep.
    """
    moment = connection.ops.adapt_datetimefield_value
    written_at = moment(now)
    same = (sale.voucher.price_cents, moment(pay_by(sale, now)), None)
    values: list[Any] = []
    for order in orders:
        values += (order.id, order.user_id, order.seckill_voucher_id, order.unit)
        values += (order.status.value, order.live, order.reason)
        values += (*same, moment(order.accepted_at), written_at)
    ids = [order.id for order in orders]
    with connection.cursor() as cursor:
        cursor.execute(_insert_orders(len(ids)), values)
        cursor.execute(_insert_events(len(ids)), [written_at, SYSTEM.kind.value, *ids])


def pay_by(sale: SeckillVoucher, now: dt.datetime) -> dt.datetime:
    """Return until when an order of this sale that is made now is to be paid."""
    return now + dt.timedelta(seconds=sale.pay_within_s)


def _insert_orders(count: int) -> str:
    rows = ", ".join([f"({_marks(len(ORDER_COLUMNS))})"] * count)
    return f"INSERT INTO {_table(VoucherOrder)} ({_names(ORDER_COLUMNS)}) VALUES {rows}"


def _insert_events(count: int) -> str:
    """The database has the orders already: of them only the ids are sent again."""
    return (
        f"INSERT INTO {_table(OrderEvent)} ({_names(EVENT_COLUMNS)}) "
        f"SELECT id, '', status, %s, %s, NULL, '', NULL, NULL FROM {_table(VoucherOrder)} "
        f"WHERE id IN ({_marks(count)})"
    )


def _marks(count: int) -> str:
    return ", ".join(["%s"] * count)


def _table(model: type[VoucherOrder] | type[OrderEvent]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(connection.ops.quote_name(column) for column in columns)
