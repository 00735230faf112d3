"""Expiry: an order that is not paid in time ends, after its provider was asked a last time.

Money that arrives even later is refunded: Note [Late payments] in ``service.py``.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from django.db import DatabaseError
from django.db.models import Exists, F, Max, OuterRef, QuerySet

from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import SYSTEM, Change
from orders.models import OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments.providers import WALK_S, PollBudget
from orders.payments.service import QueryOutcome, query_payment
from orders.payments.time_to_pay import over
from seckill_site.clocks.steps import Clocks
from vouchers.inventory.passes import Passes, are_orders_written
from vouchers.inventory.purchases import ids_of_purchase, is_in_block, purchase_of

EXPIRE_AT_ONCE = 200
"""The most orders of a sale that expire in one transaction, which holds the sale's row."""

ORDERS_AT_ONCE = 2_000
"""The most orders of a sale about whose payments one call asks."""

ASK_AT_ONCE = 20
"""The purchases to ask about before those of them that are not paid expire together."""

GRACE = dt.timedelta(minutes=2)
"""The longest silence of a provider about an order that may be paid, before it expires."""

_passes, _asking_passes = Passes("expire"), Passes("expire_being_paid")


def expire_orders(*, clocks: Clocks) -> bool:
    """End the orders whose time to pay is over and that nobody is paying, for the time of a pass.

    Return whether to go on at once: not while orders are written, which come first. One sale that
    fails does not stop the rest.
    """
    payments = Payment.objects.filter(order=OuterRef("pk"), status=PaymentStatus.OPEN)
    being_paid = Exists(payments.exclude(provider=""))
    due = VoucherOrder.objects.filter(~being_paid, over(clocks), status=OrderStatus.UNPAID)

    def expire(batch: tuple[int, list[int]]) -> None:
        sale_id, order_ids = batch
        try:
            _expire(sale_id, order_ids, clocks)
        except DatabaseError:
            _passes.failing.add(sale_id)
            raise

    return _passes.work(_batches(due), expire) and not are_orders_written()


def _batches(due: QuerySet[VoucherOrder]) -> Iterator[tuple[int, list[int]]]:
    """Yield orders by sale, those first that are due for longest; a failing sale after all others.

    The index has them in this order.
    """
    in_order = due.order_by("pay_by", "pk").values_list("seckill_voucher", "pk")
    while rows := list(in_order.exclude(seckill_voucher__in=_passes.failing)[:EXPIRE_AT_ONCE]):
        by_sale = defaultdict[int, list[int]](list)
        last_id = rows[-1][1]
        if len(rows) == EXPIRE_AT_ONCE and is_in_block(last_id):
            # Its purchase may go on beyond these: the next ones have it whole.
            rows = [row for row in rows if purchase_of(row[1]) != purchase_of(last_id)] or rows
        for sale_id, order_id in rows:
            by_sale[sale_id].append(order_id)
        yield from by_sale.items()
    _passes.failing.clear()


def expire_being_paid(*, clocks: Clocks) -> None:
    """End the orders whose time to pay is over, after asking the providers, for ``WALK_S``.

    One sale that fails does not stop the rest; the next call continues.
    """
    asked = partial(_ask_about_sale, clocks=clocks, budget=PollBudget())
    sale_ids = _payments_over(clocks).order_by().values_list("order__seckill_voucher", flat=True)
    _asking_passes.work(_asking_passes.in_turn(sale_ids.distinct()), asked, for_s=WALK_S)


def _ask_about_sale(sale_id: int, *, clocks: Clocks, budget: PollBudget) -> None:
    purchases = _open_payments(sale_id, clocks)
    while purchases:
        asked = [purchases.pop(it) for it in list(purchases)[:ASK_AT_ONCE]]
        unknown = _purchases_possibly_paid(chain.from_iterable(asked), clocks.database, budget)
        order_ids = {it.order_id for it in chain.from_iterable(asked)}
        known = sorted(it for it in order_ids if purchase_of(it) not in unknown)
        _expire(sale_id, known, clocks)


def _expire(sale_id: int, order_ids: Sequence[int], clocks: Clocks) -> None:
    if order_ids:
        expired = Change(OrderStatus.EXPIRED, SYSTEM, clocks.database)
        # Asked again of the locked rows: a buyer may have taken more time since.
        end_orders(expired, sale_id=sale_id, order_ids=order_ids, only=over(clocks))


def _payments_over(clocks: Clocks) -> QuerySet[Payment]:
    """Return the payments to ask about before their orders expire."""
    payments = Payment.objects.filter(over(clocks, of="order__"), status=PaymentStatus.OPEN)
    return payments.filter(order__status=OrderStatus.UNPAID).exclude(provider="")


def _open_payments(sale_id: int, clocks: Clocks) -> dict[int, list[Payment]]:
    """Return the payments to ask about, all of a purchase together; silent providers last."""
    payments = _payments_over(clocks).filter(order__seckill_voucher=sale_id)
    by_order = payments.order_by().values("order").annotate(silent=Max("silent_since"))
    in_turn = by_order.order_by(F("silent").asc(nulls_first=True), "order")
    order_ids = [it["order"] for it in in_turn[:ORDERS_AT_ONCE]]
    if order_ids:
        order_ids += ids_of_purchase(order_ids[-1])  # it may go on beyond these
    payments_of: dict[int, list[Payment]] = {purchase_of(it): [] for it in order_ids}
    theirs = payments.filter(order__in=order_ids).select_related("order", "charge__order")
    for payment in theirs.order_by("pk"):
        payments_of[purchase_of(payment.order_id)].append(payment)
    return payments_of


def _purchases_possibly_paid(
    payments: Iterable[Payment], now: dt.datetime, budget: PollBudget
) -> set[int]:
    """Ask about these payments; return the purchases whose state is still unknown.

    An order expires without an answer only after its own providers were silent for ``GRACE``.
    """
    unknown, charges = set[int](), set[int]()
    for payment in payments:
        charge_id = payment.charge_id or payment.pk
        if charge_id in charges:
            continue
        charges.add(charge_id)
        silent_since = payment.silent_since  # before the query sets it
        outcome = query_payment(payment, now=now, budget=budget)
        given_up = silent_since is not None and silent_since + GRACE <= now
        if outcome is QueryOutcome.LATER or (outcome is QueryOutcome.SILENCE and not given_up):
            unknown.add(purchase_of(payment.order_id))
    return unknown
