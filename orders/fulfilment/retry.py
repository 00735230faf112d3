"""Retrying: an order that could not be written and was set aside becomes a live order after all.

A set-aside order (``refused`` with the reason ``failed``) was never payable and its unit went back
on sale at once, so there is nothing to refund. Neither the sale's end nor a pause prevents a retry:
the buyer was accepted in time. Why an entry is set aside: Note [Accepted means ended] in
``worker.py``.
"""

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_noop

from orders.audience.rule_uses import open_rule_uses
from orders.fulfilment.bulk_insert import pay_by
from orders.lifecycle.transitions import SYSTEM, Actor, Change, change_order
from orders.lock_objects import lock_order
from orders.models import EventCode, OrderStatus, RefusalReason, VoucherOrder
from seckill_site.clocks.database import database_now
from seckill_site.failpoints import failpoint
from vouchers.chain import CHAIN_FIELDS, Mark, add_mark
from vouchers.inventory.holdings import Holding
from vouchers.inventory.purchases import ids_of_purchase, is_all_or_none, is_in_block
from vouchers.inventory.rebuild import load_sale, once_loaded
from vouchers.inventory.reservations import AlreadyOrdered, SoldOut, StillPending, retake
from vouchers.lock_objects import lock_seckill_voucher

logger = logging.getLogger(__name__)


class NotSetAside(Exception):
    """The order was not set aside, or has been retried already."""


class RuleForbids(Exception):
    """A rule of the sale allows the buyer no such order by now."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(reason.value)
        self.reason = reason.label


class BuyerClosed(Exception):
    """The buyer's account is closed or deleted."""


RETRY_REFUSALS: dict[type[Exception], str] = {
    VoucherOrder.DoesNotExist: gettext_noop("the order does not exist"),
    NotSetAside: gettext_noop("the order is not waiting for a retry"),
    BuyerClosed: gettext_noop("the buyer's account is closed"),
    AlreadyOrdered: gettext_noop("the buyer already has order %(order_id)s for the same voucher"),
    SoldOut: gettext_noop("no vouchers are left"),
    RuleForbids: "%(reason)s",
    StillPending: gettext_noop("it is still being processed; try again in a few seconds"),
}
"""The expected refusals of a retry, as texts for staff. None of them changes anything."""


@dataclass(frozen=True)
class Retry:
    """The outcome of one retry: the order is live, unless it was refused."""

    order_id: int
    refusal: Exception | None = None

    @property
    def reason(self) -> str:
        """The refusal in words, for staff."""
        return (
            gettext(RETRY_REFUSALS[type(self.refusal)]) % vars(self.refusal) if self.refusal else ""
        )


def set_aside_orders() -> QuerySet[VoucherOrder]:
    """Return the orders that could not be written and were set aside, oldest first."""
    orders = VoucherOrder.objects.filter(status=OrderStatus.REFUSED, reason=RefusalReason.FAILED)
    return orders.order_by("pk")


def is_set_aside(order: VoucherOrder) -> bool:
    """Return whether this order could not be written and was set aside."""
    return order.status == OrderStatus.REFUSED and order.reason == RefusalReason.FAILED


def retry_orders(*, order_ids: Iterable[int], by: Actor = SYSTEM) -> Iterator[Retry]:
    """Retry these orders one by one, lazily; a refused one does not stop the rest.

    :raises LedgerUnavailable: Redis did not respond; retrying the same order again is safe.
    :raises django.db.Error: the database did not respond; retrying is just as safe.
    """
    live: set[int] = set()  # with another order of their purchase
    for order_id in order_ids:
        try:
            if order_id not in live:
                together = _retried_together(order_id)
                # A long list takes minutes, and each buyer gets the full time to pay.
                retry_order(order_id=order_id, by=by, now=database_now())
                live.update(it for it in together if it != order_id)
        except tuple(RETRY_REFUSALS) as refusal:
            yield Retry(order_id, refusal)
        else:
            yield Retry(order_id)


def retry_order(*, order_id: int, by: Actor = SYSTEM, now: dt.datetime) -> None:
    """Make a set-aside order live and unpaid under its own id; a refusal changes nothing.

    If its buyer wanted all of several units or none, this is done for all of its purchase.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises NotSetAside: it was not set aside, or has been retried already.
    :raises BuyerClosed: the buyer's account is closed or deleted.
    :raises AlreadyOrdered: the buyer has another order of that unit by now.
    :raises RuleForbids: its invitation code is used, or the buyer has another order by now.
    :raises SoldOut: too few units are left, in the ledger or in the database.
    :raises StillPending: its release has not arrived yet.
    :raises LedgerUnavailable: Redis did not respond; the same call again is safe.
    """
    sale_id = VoucherOrder.objects.values_list("seckill_voucher_id", flat=True).get(pk=order_id)
    order_ids = _retried_together(order_id)
    retry = partial(_retry, sale_id=sale_id, order_ids=order_ids, by=by, now=now)
    once_loaded(retry, sale_id=sale_id, load=partial(load_sale, bring_back=True))
    logger.info("orders %s of sale %s were set aside and are live now", order_ids, sale_id)


def _retried_together(order_id: int) -> list[int]:
    if not is_in_block(order_id):
        return [order_id]
    purchase = set_aside_orders().filter(pk__in=ids_of_purchase(order_id))
    ids = list(purchase.values_list("pk", flat=True))
    return ids if order_id in ids and any(map(is_all_or_none, ids)) else [order_id]


def _retry(*, sale_id: int, order_ids: Sequence[int], by: Actor, now: dt.datetime) -> None:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        holdings = [_retriable(lock_order(order_id=it)) for it in order_ids]
        if sale.sold + len(holdings) > sale.stock:
            raise SoldOut
        uses = open_rule_uses(sale, holdings)
        for holding in holdings:
            if reason := uses.refusal(holding):
                raise RuleForbids(reason)
            uses.take(holding)
        uses.save()
        retake(sale_id=sale_id, holdings=holdings)
        # A crash between here and the commit leaves a buyer without a live order. Reconcile makes
        # it pending, and fulfilment, which finds the refused row, releases it. A retry before that
        # finds its own unit and continues.
        failpoint("retry.claimed")
        retried = Change(OrderStatus.UNPAID, by, now, code=EventCode.RETRIED)
        due = pay_by(sale, now)
        for it in order_ids:
            change_order(retried, sale_id=sale_id, order_id=it, reason="", pay_by=due)
            add_mark(sale, Mark.RETRY, it)
        sale.sold += len(order_ids)
        sale.note_sold_out(now)
        sale.save(update_fields=["sold", "sold_out_at", *CHAIN_FIELDS])


def _retriable(order: VoucherOrder) -> Holding:
    """Return the unit that the order would hold; raise if the database rules it out."""
    if not is_set_aside(order):
        raise NotSetAside(f"order {order} is {order.status} {order.reason}")
    buyer = order.user
    if buyer is None or not buyer.is_active:
        raise BuyerClosed(f"the buyer of order {order} has no active account")
    live_id = _live_order_at(order)
    if live_id is not None:
        raise AlreadyOrdered(live_id)
    return Holding(order.pk, buyer.pk, order.unit)


def _live_order_at(order: VoucherOrder) -> int | None:
    """Return the live order that holds this order's unit."""
    orders = VoucherOrder.objects.filter(
        seckill_voucher=order.seckill_voucher_id, user=order.user_id, unit=order.unit, live=True
    )
    return orders.values_list("pk", flat=True).first()
