"""What buyers, staff and the provider do to orders while the soak throws its faults at them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError
from django.utils import timezone

from orders.lifecycle.cancellation import Busy, cancel_order
from orders.lifecycle.transitions import SYSTEM, WrongState
from orders.lifecycle.waiting_list import join
from orders.models import OrderStatus, VoucherOrder
from orders.payments import sandbox
from orders.payments.providers import ChargeState, Statement, current_provider
from orders.payments.refunds import refund_order
from orders.payments.service import start_payment, take_statement
from orders.placing.tokens import read_token
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.reservations import AlreadyOrdered, NotStarted, SaleEnded, TooFew
from vouchers.inventory.waiting_list import UnitAvailable
from vouchers.models import SeckillVoucher

NOES = (
    AlreadyOrdered,
    TooFew,
    UnitAvailable,
    NotStarted,
    SaleEnded,
    WrongState,
    Busy,
    LedgerUnavailable,
    NotLoaded,
    DatabaseError,
    VoucherOrder.DoesNotExist,
)
"""Answers that one may get while others change the same orders and parts are away."""

ADDRESSES: dict[str, Any] = {
    "return_url": "http://127.0.0.1:9/receipt/",
    "notify_url": "http://127.0.0.1:9/notify/",
}
"""Where nobody listens: the soak brings the provider's word itself."""


class Changes:
    """Each picks orders of the sale at random, and says what it did."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self.kinds: list[Callable[[SeckillVoucher], str]] = [
            self.orders_cancelled,
            self.time_to_pay_over,
            self.orders_paid,
            self.orders_refunded,
        ]

    def orders_cancelled(self, sale: SeckillVoucher) -> str:
        ids = self._some(sale, OrderStatus.UNPAID, most=3)
        return _done(
            lambda pk: cancel_order(order_id=pk, by=SYSTEM, why="soak", now=timezone.now()), ids
        )

    def time_to_pay_over(self, sale: SeckillVoucher) -> str:
        ids = self._some(sale, OrderStatus.UNPAID, most=5)
        VoucherOrder.objects.filter(pk__in=ids).update(pay_by=timezone.now())
        return f"of {len(ids)}"

    def orders_paid(self, sale: SeckillVoucher) -> str:
        return _done(_pay_twice, self._some(sale, OrderStatus.UNPAID, most=3))

    def orders_refunded(self, sale: SeckillVoucher) -> str:
        ids = self._some(sale, OrderStatus.PAID, most=2)
        return _done(
            lambda pk: refund_order(order_id=pk, by=SYSTEM, why="soak", now=timezone.now()), ids
        )

    def _some(self, sale: SeckillVoucher, status: OrderStatus, *, most: int) -> list[int]:
        orders = VoucherOrder.objects.filter(seckill_voucher=sale, status=status)
        ids = list(orders.order_by("pk").values_list("pk", flat=True))
        return self._random.sample(ids, min(len(ids), self._random.randint(1, most)))


def wait_in_line(sale: SeckillVoucher, token_text: str, **wants: Any) -> bool:
    """Let the owner of a token join the waiting list; False where that was refused."""
    now_ms = time.time_ns() // 1_000_000
    token = read_token(token_text, sale_id=sale.pk, now_ms=now_ms)
    try:
        join(token_text=token_text, sale_id=sale.pk, user_id=token.user_id, now_ms=now_ms, **wants)
    except NOES:
        return False
    return True


def _pay_twice(order_id: int) -> None:
    """Pay at the provider, and bring its word twice."""
    start_payment(order_id=order_id, **ADDRESSES, now=timezone.now())
    payment = VoucherOrder.objects.get(pk=order_id).payments.get()
    sandbox.decide(reference=payment.reference, choice=sandbox.Choice.NEVER, now=timezone.now())
    said = Statement(payment.reference, ChargeState.PAID, payment.amount_cents, "soak")
    for _ in range(2):
        take_statement(current_provider(), said, now=timezone.now())


def _done(change: Callable[[int], object], order_ids: list[int]) -> str:
    refused = 0
    for order_id in order_ids:
        try:
            change(order_id)
        except NOES:
            refused += 1
    return f"{len(order_ids) - refused} of {len(order_ids)}"
