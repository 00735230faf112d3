"""Changing an order's state: one conditional statement, and a row of history for each change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connection

from orders.models import (
    LIVE_STATUSES,
    SOURCES,
    TOLD_STATUSES,
    UNDOES,
    ActorKind,
    EventCode,
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


class Change(NamedTuple):
    """A change of an order's state, as the history records it: ``why`` is what a person typed.

    ``is_undo``: the order goes back to the state before, as ``UNDOES`` allows.
    """

    to: OrderStatus
    by: Actor
    at: dt.datetime
    why: str = ""
    code: EventCode | None = None
    values: Mapping[str, str | int] | None = None
    is_undo: bool = False


def change_order(change: Change, *, sale_id: int, order_id: int, **fields: Any) -> None:
    """Change an order's state and record the change; ``fields`` are set with the state.

    The caller has a transaction open, and takes or returns units.

    :raises WrongState: it is in another state; nothing was changed.
    :raises VoucherOrder.DoesNotExist: there is no such order.
    """
    if not change_orders(change, sale_id=sale_id, order_ids=[order_id], **fields):
        raise WrongState(VoucherOrder.objects.values_list("status", flat=True).get(pk=order_id))


def change_orders(change: Change, *, sale_id: int, order_ids: Sequence[int], **fields: Any) -> int:
    """Change those of a sale's orders that are in the source state; return how many.

    If not all could be changed, no history is written and the caller has to roll back.
    """
    assert connection.in_atomic_block, "a change and its history belong together"
    source = (UNDOES if change.is_undo else SOURCES)[change.to]
    if source in KEPT_STATUSES:
        invalidate_rows(sale_id=sale_id, order_ids=order_ids)
    orders = VoucherOrder.objects.filter(pk__in=order_ids, status=source)
    live = True if change.to in LIVE_STATUSES else None
    changed = orders.update(status=change.to, live=live, **fields)
    if changed == len(order_ids):
        note(change, order_ids=order_ids, before=source)
    return changed


def note(change: Change, *, order_ids: Sequence[int], before: str) -> None:
    """Add an event to the history of each order."""
    OrderEvent.objects.bulk_create(
        OrderEvent(
            order_id=order_id,
            before=before,
            after=change.to,
            at=change.at,
            actor_kind=change.by.kind,
            actor_id=change.by.user_id,
            reason=change.why[:200],
            code=change.code or "",
            values=change.values,
            webhooks_due=True if change.to in TOLD_STATUSES and change.to != before else None,
        )
        for order_id in order_ids
    )
