"""New orders into the tables: two statements a batch, whatever its size, and no ORM object a row.

``bulk_create`` spends several times as long on a row as the database (``docs/performance.md``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from django.db import connection

from orders.fulfilment.existing_orders import numbers, table
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from vouchers.models import SeckillVoucher


class NewOrder(NamedTuple):
    """What is particular to one new order; ``reason`` is empty unless it is refused."""

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
    ids = [order.id for order in orders]
    shared: dict[str, int | str] = {
        "sale": sale.pk,
        "price": sale.voucher.price_cents,
        "pay_by": _moment(pay_by(sale, now)),
        "now": _moment(now),
        "system": SYSTEM.kind.value,
        "unpaid": OrderStatus.UNPAID.value,
        "refused": OrderStatus.REFUSED.value,
    }
    reasons = sorted({order.reason for order in orders})
    names = {reason: f"reason_{number}" for number, reason in enumerate(reasons)}
    shared |= {name: reason for reason, name in names.items()}
    rows = ",".join([_row(order, names[order.reason]) for order in orders])
    columns = _names(ORDER_COLUMNS)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table(VoucherOrder)} ({columns}) VALUES {rows}", shared)
        cursor.execute(_insert_events(ids), shared)


def pay_by(sale: SeckillVoucher, now: dt.datetime) -> dt.datetime:
    """Return until when an order of this sale that is made now is to be paid."""
    return now + dt.timedelta(seconds=sale.pay_within_s)


def _row(order: NewOrder, reason: str) -> str:
    """Return a row's values: its own numbers and time, and the names of what many share.

    The driver quotes each value that it is given in Python; what rows share it quotes once.
    """
    user = "NULL" if order.user_id is None else f"{order.user_id:d}"
    standing = "%(refused)s,NULL" if order.reason else "%(unpaid)s,1"
    return (
        f"({order.id:d},{user},%(sale)s,{order.unit:d},{standing},%({reason})s,%(price)s,"
        f"%(pay_by)s,NULL,'{_moment_of(order.accepted_at_ms)}',%(now)s)"
    )


def _moment(when: dt.datetime) -> str:
    """Return a time as both databases take it: digits, dashes and colons in UTC."""
    return when.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _moment_of(epoch_ms: int) -> str:
    second, ms = divmod(epoch_ms, 1000)
    return f"{_second(second)}.{ms:03d}000"


@lru_cache(maxsize=64)
def _second(since_1970: int) -> str:
    """A batch was accepted within a few seconds."""
    return dt.datetime.fromtimestamp(since_1970, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _insert_events(ids: Sequence[int]) -> str:
    """The database has the orders already: of them only the ids are sent again."""
    return (
        f"INSERT INTO {table(OrderEvent)} ({_names(EVENT_COLUMNS)}) "
        "SELECT id, '', status, %(now)s, %(system)s, NULL, '', NULL, NULL "
        f"FROM {table(VoucherOrder)} WHERE id IN ({numbers(ids)})"
    )


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(connection.ops.quote_name, columns))
