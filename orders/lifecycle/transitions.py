"""Changing an order's state: one conditional statement, and a row of history for each change."""

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
    """The order is not in the state from which this change starts; ``status`` is its state."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the order is {status}")
        self.status = status


class Actor(NamedTuple):
    """The buyer, member of staff, provider or system that changes an order."""

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
    """Change an order's state, and record who did it and why.

    The caller has a transaction open, and takes or returns units. ``fields`` are set with the
    state.

    :raises WrongState: it is in another state; nothing was changed.
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
    """Change those of a sale's orders that are in the state before; return how many.

    If not all could be changed, no history is written and the caller has to roll back.
    """
    assert connection.in_atomic_block, "a change and its history belong together"
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
    """Add an event to the history of each order."""
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
