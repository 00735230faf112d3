"""The one way in which an order changes its state, and the history row that each change leaves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connection

from orders.models import (
    LIVE_STATUSES,
    SOURCES,
    ActorKind,
    OrderEvent,
    OrderStatus,
    VoucherOrder,
)
from orders.receipts.row_copy import KEPT_STATUSES
from vouchers.inventory.receipt_cache import invalidate_rows


class WrongState(Exception):
    """The order is not in the state that this change begins at; ``status`` is what it is."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Actor(NamedTuple):
    """Who changes an order."""

    kind: ActorKind
    user_id: int | None = None

    @classmethod
    def buyer(cls, user_id: int | None) -> Actor:
        return cls(ActorKind.BUYER, user_id)

    @classmethod
    def staff(cls, user_id: int | None) -> Actor:
        return cls(ActorKind.STAFF, user_id)


SYSTEM = Actor(ActorKind.SYSTEM)
PROVIDER = Actor(ActorKind.PROVIDER)


def change_order(
    *,
    sale_id: int,
    order_id: int,
    to: OrderStatus,
    by: Actor,
    at: dt.datetime,
    why: str = "",
    **fields: Any,
) -> None:
    """Change an order's state in one conditional statement, and note who did it and why.

    The caller has a transaction open, and gives units back or takes them. ``fields`` are set with
    the state.

    :raises WrongState: it is in another state, and nothing was changed.
    :raises VoucherOrder.DoesNotExist: there is no such order.
    """
    changed = change_orders(
        sale_id=sale_id, order_ids=[order_id], to=to, by=by, at=at, why=why, **fields
    )
    if not changed:
        raise WrongState(VoucherOrder.objects.values_list("status", flat=True).get(pk=order_id))


def change_orders(
    *,
    sale_id: int,
    order_ids: Sequence[int],
    to: OrderStatus,
    by: Actor,
    at: dt.datetime,
    why: str = "",
    **fields: Any,
) -> int:
    """Change those of these orders of one sale that can come to the state; return how many.

    Where it is fewer than all, the caller has to roll back: the history would name them all.
    """
    assert connection.in_atomic_block, "the change and its history are one"
    source = SOURCES[to]
    if source in KEPT_STATUSES:
        invalidate_rows(sale_id=sale_id, order_ids=order_ids)
    found = VoucherOrder.objects.filter(pk__in=order_ids, status=source)
    changed = found.update(status=to, live=True if to in LIVE_STATUSES else None, **fields)
    if changed == len(order_ids):
        note(order_ids=order_ids, before=source, after=to, by=by, at=at, why=why)
    return changed


def note(
    *,
    order_ids: Sequence[int],
    before: str,
    after: str,
    by: Actor,
    at: dt.datetime,
    why: str = "",
) -> None:
    """Add a row to the history of each of these orders."""
    OrderEvent.objects.bulk_create(
        OrderEvent(
            order_id=order_id,
            before=before,
            after=after,
            at=at,
            actor_kind=by.kind,
            actor_id=by.user_id,
            reason=why[:200],
        )
        for order_id in order_ids
    )
