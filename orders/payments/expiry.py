"""Expiry: an order that is not paid in time ends, after its provider was asked a last time.

Money that arrives even later is refunded: Note [Late payments] in ``service.py``.
"""

import datetime as dt
import logging
from collections.abc import Iterable, Iterator
from itertools import chain

from django.db import DatabaseError
from django.db.models import Exists, F, Max, OuterRef, QuerySet

from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import SYSTEM, Change
from orders.models import OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import PollBudget
from orders.payments.service import QueryOutcome, query_payment
from orders.payments.time_to_pay import over
from seckill_site.clocks.steps import Clocks

logger = logging.getLogger(__name__)

EXPIRE_AT_ONCE = 500
"""The most orders of a sale that expire in one transaction, which holds the sale's row."""

ORDERS_AT_ONCE = 2_000
"""The most orders of a sale about whose payments one call asks."""

ASK_AT_ONCE = 20
"""The orders to ask about before those of them that are not paid expire together."""

GRACE = dt.timedelta(minutes=2)
"""The longest silence of a provider about an order that may be paid, before it expires."""


def expire_orders(*, clocks: Clocks, ask: bool = True) -> int:
    """End every unpaid order whose time to pay is over, in batches; return how many.

    Unless ``ask``, those stay about which a provider has to be asked.
    One sale that fails does not stop the rest; the next call continues.
    """
    due = VoucherOrder.objects.filter(over(clocks), status=OrderStatus.UNPAID)
    sale_ids = due.order_by("seckill_voucher").values_list("seckill_voucher", flat=True)
    budget = PollBudget()
    return sum(_expire_sale(sale_id, clocks, budget, ask) for sale_id in list(sale_ids.distinct()))


def _expire_sale(sale_id: int, clocks: Clocks, budget: PollBudget, ask: bool) -> int:
    """End the due orders of a sale, starting with those that no provider has to be asked about."""
    now = clocks.database
    due = VoucherOrder.objects.filter(
        over(clocks), seckill_voucher=sale_id, status=OrderStatus.UNPAID
    )
    payments = Payment.objects.filter(order=OuterRef("pk"), status=PaymentStatus.OPEN)
    being_paid = Exists(payments.exclude(provider=""))
    expired = 0
    try:
        for batch in _batches(due.exclude(being_paid)):
            expired += _expire(sale_id, batch, now)
        orders = _open_payments(sale_id, clocks) if ask else {}
        order_ids = list(orders)
        for first in range(0, len(order_ids), ASK_AT_ONCE):
            asked = order_ids[first : first + ASK_AT_ONCE]
            their_payments = chain.from_iterable(orders[it] for it in asked)
            unknown = _orders_possibly_paid(their_payments, now, budget)
            expired += _expire(sale_id, [it for it in asked if it not in unknown], now)
    except DatabaseError as error:
        logger.warning("orders of sale %s do not expire now: %s", sale_id, error)
    return expired


def _batches(due: QuerySet[VoucherOrder]) -> Iterator[list[int]]:
    """Yield order ids in batches: each order is tried once, whether or not it expires."""
    last_id = 0
    ids = due.order_by("pk").values_list("pk", flat=True)
    while batch := list(ids.filter(pk__gt=last_id)[:EXPIRE_AT_ONCE]):
        yield batch
        last_id = batch[-1]


def _expire(sale_id: int, order_ids: list[int], now: dt.datetime) -> int:
    if not order_ids:
        return 0
    expired = Change(OrderStatus.EXPIRED, SYSTEM, now)
    return len(end_orders(expired, sale_id=sale_id, order_ids=order_ids))


def _open_payments(sale_id: int, clocks: Clocks) -> dict[int, list[Payment]]:
    """Return the payments to ask about, all of an order together; silent providers last."""
    payments = Payment.objects.filter(
        over(clocks, of="order__"),
        status=PaymentStatus.OPEN,
        order__seckill_voucher=sale_id,
        order__status=OrderStatus.UNPAID,
    ).exclude(provider="")
    by_order = payments.order_by().values("order").annotate(silent=Max("silent_since"))
    in_turn = by_order.order_by(F("silent").asc(nulls_first=True), "order")
    payments_of: dict[int, list[Payment]] = {it["order"]: [] for it in in_turn[:ORDERS_AT_ONCE]}
    for payment in payments.filter(order__in=payments_of).select_related("order").order_by("pk"):
        payments_of[payment.order_id].append(payment)
    return payments_of


def _orders_possibly_paid(
    payments: Iterable[Payment], now: dt.datetime, budget: PollBudget
) -> set[int]:
    """Ask about these payments; return the orders whose state is still unknown.

    An order expires without an answer only after its own providers were silent for ``GRACE``.
    """
    unknown = set()
    for payment in payments:
        silent_since = payment.silent_since  # before the query sets it
        outcome = query_payment(payment, now=now, budget=budget)
        given_up = silent_since is not None and silent_since + GRACE <= now
        if outcome is QueryOutcome.LATER or (outcome is QueryOutcome.SILENCE and not given_up):
            unknown.add(payment.order_id)
    return unknown
