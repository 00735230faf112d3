"""Retrying: an order that could not be written and was set aside becomes a live order after all.

A set-aside order (``refused``, because ``failed``) was never payable and its unit went back on sale
at once, so there is nothing to refund; all that can be done for its buyer is to try again. Neither
the sale's end nor a pause stands in the way: the buyer was accepted in time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from orders.fulfilment.bulk_insert import pay_by
from orders.lifecycle.transitions import SYSTEM, Actor, change_order
from orders.models import OrderStatus, RefusalReason, VoucherOrder
from seckill_site.failpoints import failpoint
from vouchers.inventory.keys import Holding, NotLoaded
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import AlreadyOrdered, SoldOut, StillPending, claim
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)


class NotSetAside(Exception):
    """The order is none that was set aside, or is live again by now."""


class BuyerClosed(Exception):
    """The buyer's account is closed or deleted."""


REFUSALS = (
    VoucherOrder.DoesNotExist,
    NotSetAside,
    BuyerClosed,
    AlreadyOrdered,
    SoldOut,
    StillPending,
)
"""The expected noes to a retry; after each, nothing was changed."""


@dataclass(frozen=True)
class Retry:
    """What became of one retry: the order is live, unless there is one of ``REFUSALS``."""

    order_id: int
    refusal: Exception | None = None


def set_aside_orders() -> QuerySet[VoucherOrder]:
    """Return the orders that could not be written and were set aside, oldest first."""
    orders = VoucherOrder.objects.filter(status=OrderStatus.REFUSED, reason=RefusalReason.FAILED)
    return orders.order_by("pk")


def is_set_aside(order: VoucherOrder) -> bool:
    """Say whether this order could not be written and was set aside."""
    return order.status == OrderStatus.REFUSED and order.reason == RefusalReason.FAILED


def retry_orders(*, order_ids: Iterable[int], by: Actor = SYSTEM) -> Iterator[Retry]:
    """Retry these orders one after the other, lazily; one that is refused does not stop the rest.

    :raises LedgerUnavailable: Redis did not answer; retrying the same order again is safe.
    :raises django.db.Error: the database did not; likewise.
    """
    for order_id in order_ids:
        try:
            retry_order(order_id=order_id, by=by)
        except REFUSALS as refusal:
            yield Retry(order_id, refusal)
        else:
            yield Retry(order_id)


def retry_order(*, order_id: int, by: Actor = SYSTEM) -> None:
    """Make a set-aside order live and unpaid under its own id; where it is refused, change nothing.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises NotSetAside: it was not set aside, or has been retried already.
    :raises BuyerClosed: nobody is there to have it.
    :raises AlreadyOrdered: the buyer has another order of that unit by now.
    :raises SoldOut: no unit is left, in the ledger or in the database.
    :raises StillPending: its release has not come through yet.
    :raises LedgerUnavailable: Redis did not answer; the same call again is safe.
    """
    sale_id = VoucherOrder.objects.values_list("seckill_voucher_id", flat=True).get(pk=order_id)
    try:
        _retry(sale_id=sale_id, order_id=order_id, by=by)
    except NotLoaded:
        load_sale(sale_id=sale_id)
        _retry(sale_id=sale_id, order_id=order_id, by=by)
    logger.info("order %s of sale %s was set aside and is live now", order_id, sale_id)


def _retry(*, sale_id: int, order_id: int, by: Actor) -> None:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        order = _lock_order(order_id=order_id)
        holding = _retriable(sale, order)
        claim(sale_id=sale_id, holding=holding)
        # Whoever dies between here and the commit leaves a buyer without a live order. Reconcile
        # puts such a one to pending, and fulfilment, which finds the refused row, releases it; a
        # retry before that finds its own claim and goes on.
        failpoint("retry.claimed")
        change_order(
            sale_id=sale_id,
            order_id=order.pk,
            to=OrderStatus.UNPAID,
            by=by,
            at=timezone.now(),
            why=gettext_noop("retried"),
            reason="",
            pay_by=pay_by(sale, timezone.now()),
        )
        sale.sold += 1
        sale.save(update_fields=["sold"])


def _lock_order(*, order_id: int) -> VoucherOrder:
    """Lock the order's row, after its sale's, and return it as it is now."""
    return VoucherOrder.objects.select_for_update().get(pk=order_id)


def _retriable(sale: SeckillVoucher, order: VoucherOrder) -> Holding:
    """Return what the order would hold, if the database has nothing against it."""
    if not is_set_aside(order):
        raise NotSetAside
    buyer = order.user
    if buyer is None or not buyer.is_active:
        raise BuyerClosed
    standing = _live_order_at(order)
    if standing is not None:
        raise AlreadyOrdered(standing)
    if sale.sold >= sale.stock:
        raise SoldOut
    return Holding(order.pk, buyer.pk, order.unit)


def _live_order_at(order: VoucherOrder) -> int | None:
    """Return the live order that stands where this one would."""
    orders = VoucherOrder.objects.filter(
        seckill_voucher=order.seckill_voucher_id, user=order.user_id, unit=order.unit, live=True
    )
    return orders.values_list("pk", flat=True).first()


def why_not(refusal: Exception) -> str:
    """Return a refusal in words, for staff."""
    if isinstance(refusal, AlreadyOrdered):
        text = gettext("the buyer already has order %(order_id)s for that unit")
        return text % {"order_id": refusal.order_id}
    if isinstance(refusal, NotSetAside):
        return gettext("the order was not set aside")
    if isinstance(refusal, BuyerClosed):
        return gettext("the buyer's account is closed")
    if isinstance(refusal, SoldOut):
        return gettext("no units are left")
    if isinstance(refusal, StillPending):
        return gettext("it is still pending; try again in a few seconds")
    return gettext("the order does not exist")
