"""Ending orders: each is cancelled, expires or is refunded, and its unit goes back on sale once.

The database is written first, then Redis. A crash in between leaves a buyer without a live order:
reconcile makes it pending, and fulfilment, which finds how the order ended, releases it.
"""

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from locks import LockBusy, LockNotOwned, RedisLock
from orders.audience.caps import check_cancellations
from orders.audience.rule_uses import return_rule_uses
from orders.lifecycle.transitions import Actor, Change, WrongState, change_orders
from orders.lock_objects import lock_orders
from orders.models import SOURCES, ActorKind, OrderStatus, VoucherOrder
from orders.placing.publishing import publish_fulfilment
from seckill_site.failpoints import failpoint
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.holdings import Holding
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_errors
from vouchers.inventory.purchases import ids_of_purchase
from vouchers.inventory.reservations import Release, claim_kick, release
from vouchers.lock_objects import lock_seckill_voucher

logger = logging.getLogger(__name__)

USER_LOCK_WAIT_MS = 2_000
"""The longest wait for another change of the same buyer's orders."""


class Busy(Exception):
    """Another process is changing an order of this buyer now. Try again."""


@contextmanager
def user_lock(*, sale_id: int, user_id: int) -> Iterator[None]:
    """Hold the lock of a buyer and a sale, which fulfilment, payment and cancellation share.

    :raises Busy: another process held it for longer than ``USER_LOCK_WAIT_MS``.
    :raises LedgerUnavailable: Redis did not respond.
    """
    with ledger_errors():
        lock = RedisLock(
            ledger_connection(),
            LedgerKeys(sale_id).user_lock(user_id),
            lease_ms=settings.SECKILL_LEASE_MS,
        )
        try:
            lock.acquire(wait_ms=USER_LOCK_WAIT_MS)
        except LockBusy as error:
            raise Busy(f"an order of buyer {user_id} is being changed") from error
    try:
        yield
    finally:
        try:
            with ledger_errors():
                lock.release()
        except (LockNotOwned, LedgerUnavailable) as error:
            # The transaction has committed; the lock only kept others waiting.
            logger.warning("the lock of buyer %s in sale %s: %r", user_id, sale_id, error)


def cancel_order(*, order_id: int, by: Actor, now: dt.datetime, why: str = "") -> None:
    """Cancel an unpaid order at once, with all unpaid orders of its purchase.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not unpaid; nothing was changed.
    :raises NotEligible: the buyer has cancelled too many orders within the hour.
    :raises Busy: the buyer's order is being changed now.
    :raises LedgerUnavailable: Redis did not respond; the same call again is safe.
    """
    order = VoucherOrder.objects.get(pk=order_id)
    if order.status != OrderStatus.UNPAID or order.user_id is None:
        raise WrongState(order.status)
    if by.kind == ActorKind.BUYER:
        check_cancellations(user_id=order.user_id, now=now)
    sale_id, change = order.seckill_voucher_id, Change(OrderStatus.CANCELLED, by, now, why)
    with user_lock(sale_id=sale_id, user_id=order.user_id):
        ended = end_orders(change, sale_id=sale_id, order_ids=ids_of_purchase(order_id))
    if not ended:
        order.refresh_from_db()
        raise WrongState(order.status)


def end_orders(
    change: Change, *, sale_id: int, order_ids: Sequence[int], only: Q | None = None
) -> list[VoucherOrder]:
    """End those of a sale's orders that are in the source state, and return them.

    ``only`` is a condition that they have to meet once they are locked.
    Their units are then free in the database, and in the ledger too. If Redis does not respond,
    the next reconcile frees them there.
    """
    with transaction.atomic(durable=True):
        ended = end_locked(change, sale_id=sale_id, order_ids=order_ids, only=only)
        failpoint("end.before_commit")
    failpoint("end.committed")
    give_back(sale_id=sale_id, orders=ended, reason=change.to)
    return ended


def end_locked(
    change: Change, *, sale_id: int, order_ids: Sequence[int], only: Q | None = None
) -> list[VoucherOrder]:
    """End orders in the caller's transaction; the caller runs ``give_back`` after the commit."""
    sale = lock_seckill_voucher(sale_id=sale_id)
    # Locked, because a payment takes no lock on the sale: the first to lock the order wins
    # (Note [Late payments] in payments/service.py).
    source = SOURCES[change.to]
    orders = lock_orders(sale_id=sale_id, order_ids=order_ids, status=source, only=only)
    if not orders:
        return []
    ids = [order.pk for order in orders]
    changed = change_orders(change, sale_id=sale_id, order_ids=ids)
    assert changed == len(orders), "the rows are locked"
    return_rule_uses(sale, order_ids=ids)
    sale.sold -= len(orders)
    sale.save(update_fields=["sold"])
    return orders


def give_back(*, sale_id: int, orders: Sequence[VoucherOrder], reason: str) -> None:
    """Release the units of ended orders in the ledger; the waiting list gets them first.

    Its buyers are pending then, so a fulfil task is sent; one that is lost is sent by the sweep.
    """
    releases = [
        # Note [Ended orders] in models/orders.py
        Release(Holding(order.pk, order.user_id, order.unit), reason, had_order=True)
        for order in orders
        if order.user_id is not None
    ]
    try:
        given = release(sale_id=sale_id, releases=releases)
        if given and claim_kick(sale_id=sale_id):
            publish_fulfilment(sale_id=sale_id)
    except LedgerUnavailable as error:
        logger.warning(
            "units of sale %s go back with the next sweep or reconcile: %s", sale_id, error
        )
    failpoint("end.released")
    if orders:
        logger.info("sale %s: %s orders %s", sale_id, len(orders), reason)
