"""Expiring: an order that is not paid in time ends, after its provider was asked a last time."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator

from django.db import DatabaseError
from django.db.models import Exists, F, OuterRef, QuerySet

from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import Patience
from orders.payments.service import Heard, ask_for

logger = logging.getLogger(__name__)

EXPIRE_AT_ONCE = 500
"""How many orders of a sale expire in one transaction, while its row is held."""

LOOKED_AT_ONCE = 2_000
"""How many open payments of a sale one call looks at."""

ASK_AT_ONCE = 20
"""How many orders are asked for before those of them that are not paid expire."""

GRACE = dt.timedelta(minutes=2)
"""How long a provider may be silent about an order that was perhaps paid, before it expires."""


def expire_orders(*, now: dt.datetime) -> int:
    """End every unpaid order whose time to pay is over, sale by sale in batches; return how many.

    One sale that fails does not stop the rest; the next call goes on.
    """
    due = VoucherOrder.objects.filter(status=OrderStatus.UNPAID, pay_by__lte=now)
    sale_ids = due.order_by("seckill_voucher").values_list("seckill_voucher", flat=True)
    patience = Patience()
    return sum(_expire_sale(sale_id, now, patience) for sale_id in list(sale_ids.distinct()))


def _expire_sale(sale_id: int, now: dt.datetime, patience: Patience) -> int:
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
        for asked in _groups(_open_payments(sale_id, now), ASK_AT_ONCE):
            waits = _may_have_been_paid(asked, now, patience)
            expired += _end(sale_id, [it.order_id for it in asked if it.order_id not in waits])
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


def _open_payments(sale_id: int, now: dt.datetime) -> list[Payment]:
    """Return the payments to ask for; last those that were asked for in vain before."""
    payments = Payment.objects.filter(
        status=PaymentStatus.OPEN,
        order__seckill_voucher=sale_id,
        order__status=OrderStatus.UNPAID,
        order__pay_by__lte=now,
    )
    in_turn = F("silent_since").asc(nulls_first=True)
    found = payments.exclude(provider="").select_related("order").order_by(in_turn, "pk")
    return list(found[:LOOKED_AT_ONCE])


def _groups(payments: list[Payment], size: int) -> Iterator[list[Payment]]:
    for first in range(0, len(payments), size):
        yield payments[first : first + size]


def _may_have_been_paid(
    payments: Iterable[Payment], now: dt.datetime, patience: Patience
) -> set[int]:
    """Ask for these payments; return the orders for which nobody knows yet.

    An order is given up only where its own provider has been silent about it for the grace.
    """
    unknown = set()
    for payment in payments:
        heard = Heard.SILENCE
        if patience.allows(payment.provider):
            heard = ask_for(payment, now=now)
            if heard is Heard.SILENCE:
                patience.was_silent(payment.provider)
        silent_since = payment.silent_since  # as it was before it was asked for
        given_up = silent_since is not None and silent_since + GRACE <= now
        if heard is Heard.LATER or (heard is Heard.SILENCE and not given_up):
            unknown.add(payment.order_id)
    return unknown
