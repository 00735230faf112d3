"""Redeeming: the shop accepts a voucher's code once."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from orders.lifecycle.guesses import GuessLimit
from orders.lifecycle.transitions import Actor, Change, WrongState, change_order
from orders.models import (
    CODE_LENGTH,
    OrderEvent,
    OrderStatus,
    Payment,
    PaymentStatus,
    VoucherOrder,
)
from seckill_site.clocks.steps import earlier_of_both

_SEEN_AS = str.maketrans({"O": "0", "I": "1", "L": "1", "U": "V"})


class NoSuchCode(Exception):
    """No order has this code."""


class NotRedeemable(Exception):
    """The voucher was used before, is being refunded, or its payment is disputed.

    ``redeemable`` is its order now.
    """

    def __init__(self, redeemable: Redeemable) -> None:
        super().__init__(f"the order is {redeemable.order.status}")
        self.redeemable = redeemable


class PastValidity(Exception):
    """The voucher's last day is over and no reason was given; ``redeemable`` is its order."""

    def __init__(self, redeemable: Redeemable) -> None:
        super().__init__("the voucher is past its last day")
        self.redeemable = redeemable


GUESSES = GuessLimit("redeem-wrong", most=30, window_s=60, wrong=NoSuchCode)
"""The most wrong codes that a member of staff may type per minute."""


@dataclass(frozen=True)
class Redeemable:
    """An order with its last change, as staff see it at the counter."""

    order: VoucherOrder
    last_event: OrderEvent | None
    is_disputed: bool = False

    @property
    def may_be_used(self) -> bool:
        return self.order.status == OrderStatus.PAID and not self.is_disputed

    def is_past(self, now: dt.datetime) -> bool:
        """Return whether the voucher's last day, in the shop's zone, is over by both clocks."""
        today = timezone.localdate(earlier_of_both(now))
        return self.order.seckill_voucher.voucher.is_past(today)


def read_code(text: str) -> str:
    """Return a typed code as it is stored, regardless of case, dashes and letters like O for 0.

    A scanner at the counter types the whole address from the QR code. The code is its fragment,
    which no browser sends and so no server logs.
    """
    typed = unicodedata.normalize("NFKC", text).upper().rpartition("CODE=")[2]
    return "".join(it for it in typed if it.isascii() and it.isalnum()).translate(_SEEN_AS)


def written_code(code: str) -> str:
    """Return a code as people read it, in groups of four."""
    return "-".join(code[i : i + 4] for i in range(0, CODE_LENGTH, 4))


def find_by_code(*, code: str) -> Redeemable:
    """Return the order of a code, whatever its state.

    :raises NoSuchCode: no voucher has this code.
    """
    stored = read_code(code)
    orders = VoucherOrder.objects.select_related("seckill_voucher__voucher__merchant", "user")
    orders = orders.annotate(is_disputed=Exists(_disputed(OuterRef("pk"))))
    order = orders.filter(code=stored).first() if len(stored) == CODE_LENGTH else None
    if order is None:
        raise NoSuchCode("no order has this code")
    changes = order.events.exclude(before=F("after")).select_related("actor")
    return Redeemable(order, changes.order_by("pk").last(), order.is_disputed)


def _disputed(order_id: int | OuterRef) -> QuerySet[Payment]:
    """Return the payment that paid an order, if it is disputed."""
    disputed = Payment.objects.filter(status=PaymentStatus.DISPUTED, settles=True)
    return disputed.filter(order=order_id)


def redeem(
    *,
    code: str,
    by: Actor,
    now: dt.datetime,
    why: str = "",
    note: str = "",
    values: Mapping[str, str | int] | None = None,
) -> Redeemable:
    """Use a paid voucher; of two concurrent attempts one succeeds.

    Its history keeps ``note`` and ``values``. A voucher past its last day needs a reason, which
    its history keeps: the shop may be generous, but not by accident.

    :raises PastValidity: its last day is over, and there is no reason; nothing was changed.
    :raises NoSuchCode: no order has this code.
    :raises NotRedeemable: it was used before, is being refunded, or is disputed; nothing was
        changed.
    """
    redeemable = find_by_code(code=code)
    order, is_past = redeemable.order, redeemable.is_past(now)
    if redeemable.may_be_used and is_past and not why:
        raise PastValidity(redeemable)
    try:
        with transaction.atomic(durable=True):
            reason = note or (why if is_past else "")
            used = Change(OrderStatus.USED, by, now, reason, values=values)
            change_order(used, sale_id=order.seckill_voucher_id, order_id=order.pk)
            if _disputed(order.pk).exists():  # noted under the lock of the order's row, as this is
                raise WrongState(order.status)
    except WrongState as error:
        raise NotRedeemable(find_by_code(code=code)) from error
    return find_by_code(code=code)
