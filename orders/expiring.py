"""Expiring: an order that is not paid in time ends, after its provider was asked a last time."""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterator

from django.db import DatabaseError
from django.db.models import Exists, OuterRef, QuerySet

from orders.ending import end_orders
from orders.life import SYSTEM
from orders.models import OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.paying import ask_for, unasked

logger = logging.getLogger(__name__)

EXPIRE_AT_ONCE = 500
"""How many orders of a sale expire in one transaction, while its row is held."""

ASK_AT_ONCE = 20
"""How many orders are asked for before those of them that are not paid expire.

Each may cost the provider's time-out, and what was asked has to count before the task's time is up.
"""

GIVE_UP_AFTER = 3
"""A provider that did not know so often is asked no more in this call: it is away."""

GRACE = dt.timedelta(minutes=2)
"""How much longer an order stands whose provider does not say whether it was paid."""


def expire_orders(*, now: dt.datetime) -> int:
    """End every unpaid order whose time to pay is over, sale by sale in batches; return how many.

    One sale that fails does not stop the rest; the next call goes on.
    """
    due = VoucherOrder.objects.filter(status=OrderStatus.UNPAID, pay_by__lte=now)
    sale_ids = due.order_by("seckill_voucher").values_list("seckill_voucher", flat=True)
    silences: Counter[str] = Counter()
    return sum(_expire_sale(sale_id, now, silences) for sale_id in list(sale_ids.distinct()))


def _expire_sale(sale_id: int, now: dt.datetime, silences: Counter[str]) -> int:
    """End the due orders of a sale; those first of which no provider has to be asked."""
    due = VoucherOrder.objects.filter(
        seckill_voucher=sale_id, status=OrderStatus.UNPAID, pay_by__lte=now
    )
    payments = Payment.objects.filter(order=OuterRef("pk"), status=PaymentStatus.OPEN)
    being_paid = Exists(payments.exclude(provider=""))
    expired = 0
    try:
        for batch in _batches(due.exclude(being_paid), EXPIRE_AT_ONCE):
            expired += _end(sale_id, batch)
        for batch in _batches(due.filter(being_paid), ASK_AT_ONCE):
            waits = _may_have_been_paid(batch, now, silences)
            expired += _end(sale_id, [order_id for order_id in batch if order_id not in waits])
    except DatabaseError as error:
        logger.warning("orders of sale %s do not expire now: %s", sale_id, error)
    return expired


def _batches(due: QuerySet[VoucherOrder], at_once: int) -> Iterator[list[int]]:
    """Walk through the orders by their ids: each is looked at once, whatever becomes of it."""
    last_id = 0
    ids = due.order_by("pk").values_list("pk", flat=True)
    while batch := list(ids.filter(pk__gt=last_id)[:at_once]):
        yield batch
        last_id = batch[-1]


def _end(sale_id: int, order_ids: list[int]) -> int:
    if not order_ids:
        return 0
    return len(end_orders(sale_id=sale_id, order_ids=order_ids, to=OrderStatus.EXPIRED, by=SYSTEM))


def _may_have_been_paid(order_ids: list[int], now: dt.datetime, silences: Counter[str]) -> set[int]:
    """Ask for the open payments of these orders; return the orders for which nobody knows yet.

    ``silences`` counts, by provider, how often one did not know.
    """
    unknown = set()
    for payment in unasked(order_ids):
        pay_by = payment.order.pay_by
        in_time = pay_by is not None and now < pay_by + GRACE
        if silences[payment.provider] < GIVE_UP_AFTER and ask_for(payment, now=now):
            continue
        silences[payment.provider] += 1
        if in_time:
            unknown.add(payment.order_id)
    return unknown
