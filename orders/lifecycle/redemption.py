"""Redeeming: the shop accepts a voucher's code once, and undoes a use that was a mistake."""

from __future__ import annotations

import datetime as dt
import unicodedata
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from orders.lifecycle.guesses import GuessLimit
from orders.lifecycle.transitions import Actor, Change, WrongState, change_order
from orders.models import (
    CODE_LENGTH,
    PROGRAM,
    OrderEvent,
    OrderStatus,
    Payment,
    PaymentStatus,
    VoucherOrder,
)
from seckill_site.clocks.steps import earlier_of_both
from vouchers.models import Merchant

_SEEN_AS = str.maketrans({"O": "0", "I": "1", "L": "1", "U": "V"})

UNDO_WITHIN = dt.timedelta(minutes=5)
"""How long whoever redeemed a voucher may undo that; later an operator may."""

_GONE_BACK = (PaymentStatus.REFUNDING, PaymentStatus.REFUNDED, PaymentStatus.REFUND_FAILED)
"""The states of a payment with which its voucher cannot be given back to the buyer."""


class NoSuchCode(Exception):
    """No order has this code."""


class OtherMerchant(Exception):
    """The voucher is of a merchant for whom this person does not redeem."""

    def __init__(self, merchant: Merchant) -> None:
        super().__init__(f"the voucher is of merchant {merchant.pk}")
        self.merchant = merchant


class NotRedeemable(Exception):
    """The voucher was used before, is being refunded, or is disputed, or the key is spent.

    ``redeemable`` is its order now.
    """

    def __init__(self, redeemable: Redeemable) -> None:
        super().__init__(f"the order is {redeemable.order.status}")
        self.redeemable = redeemable


class PastValidity(NotRedeemable):
    """The voucher's last day is over: it is refunded by itself, or no reason was given."""


class NotUndoable(NotRedeemable):
    """It was undone before, its money went back, or it needs an operator with a reason."""


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

    @property
    def use(self) -> OrderEvent | None:
        """The change that used the voucher, while it is used."""
        return self.last_event if self.order.status == OrderStatus.USED else None

    def is_past(self, now: dt.datetime) -> bool:
        """Return whether the voucher's last day, in the shop's zone, is over by both clocks."""
        today = timezone.localdate(earlier_of_both(now))
        return self.order.seckill_voucher.voucher.is_past(today)

    def has_lapsed(self, now: dt.datetime) -> bool:
        """Return whether the money goes back by itself, so that the counter makes no exception."""
        goes_back = self.order.seckill_voucher.refund_unused and self.order.price_cents
        return bool(goes_back) and self.is_past(now)


def read_code(text: str) -> str:
    """Return a typed code as it is stored, regardless of case, dashes and letters like O for 0.

    A scanner at the counter types the whole address from the QR code. The code is its fragment,
    which no browser sends and so no server logs.
    """
    typed = unicodedata.normalize("NFKC", text).upper().rpartition("CODE=")[2]
    return "".join(it for it in typed if it.isascii() and it.isalnum()).translate(_SEEN_AS)


def written_code(code: str) -> str:
    """Return a code as people read it, in groups of four."""
    return "-".join(code[i : i + 4] for i in range(0, len(code), 4))


def find_by_code(*, code: str, merchants: frozenset[int] | None = None) -> Redeemable:
    """Return the order of a code, whatever its state; ``merchants`` are ids, None: all.

    :raises NoSuchCode: no voucher has this code.
    :raises OtherMerchant: it is not a voucher of these merchants.
    """
    stored = read_code(code)
    orders = VoucherOrder.objects.select_related("seckill_voucher__voucher__merchant", "user")
    orders = orders.annotate(is_disputed=Exists(_disputed(OuterRef("pk"))))
    order = orders.filter(code=stored).first() if len(stored) == CODE_LENGTH else None
    if order is None:
        raise NoSuchCode("no order has this code")
    if merchants is not None:
        merchant = order.seckill_voucher.voucher.merchant or Merchant.default()
        if merchant.pk not in merchants:
            raise OtherMerchant(merchant)
    changes = order.events.exclude(before=F("after")).select_related("actor")
    return Redeemable(order, changes.order_by("pk").last(), order.is_disputed)


def _disputed(order_id: int | OuterRef) -> QuerySet[Payment]:
    """Return the payment that paid an order, if it is disputed."""
    disputed = Payment.objects.filter(status=PaymentStatus.DISPUTED, settles=True)
    return disputed.filter(order=order_id)


# --- Redeeming ------------------------------------------------------------------------------------


class Redeemed(NamedTuple):
    """A redeemed voucher; ``repeated`` if an earlier request with this key did it."""

    redeemable: Redeemable
    repeated: bool


def redeem(
    *,
    code: str,
    by: Actor,
    now: dt.datetime,
    key: str = "",
    why: str = "",
    program: str = "",
    merchants: frozenset[int] | None = None,
) -> Redeemed:
    """Use a paid voucher, or say that an earlier request with this key has.

    Of two concurrent attempts one succeeds. A key names one use, also after that was undone. A
    program, which the history names, may come without one. A voucher past its last day needs a
    reason, which its history keeps: the shop may be generous, but not by accident. Where unused
    vouchers are refunded there are no exceptions, because the refund may have begun.

    :raises PastValidity: its last day is over, and it is refunded or there is no reason; nothing
        was changed.
    :raises NoSuchCode: no order has this code.
    :raises OtherMerchant: it is not a voucher of these merchants.
    :raises NotRedeemable: it was used before, is being refunded, or is disputed, or the use with
        this key was undone; nothing was changed.
    """
    redeemable = find_by_code(code=code, merchants=merchants)
    order, is_past = redeemable.order, redeemable.is_past(now)
    if redeemable.may_be_used and is_past and (not why or redeemable.has_lapsed(now)):
        raise PastValidity(redeemable)
    reason = program or (why if is_past else "")
    used = Change(OrderStatus.USED, by, now, reason, values={"key": key} if key else None)
    try:
        with transaction.atomic(durable=True):
            change_order(used, sale_id=order.seckill_voucher_id, order_id=order.pk)
            # Both are written under the lock of the order's row, as this is.
            if _disputed(order.pk).exists() or (key and _uses(order.pk, by, key) > 1):
                raise WrongState(order.status)
    except WrongState as error:
        found = find_by_code(code=code)
        if _is_repeat(found.use, by, key, program):
            return Redeemed(found, repeated=True)
        raise NotRedeemable(found) from error
    return Redeemed(find_by_code(code=code), repeated=False)


def _uses(order_id: int, by: Actor, key: str) -> int:
    """Return how often somebody used an order with this key, also if that was undone."""
    uses = OrderEvent.objects.filter(order=order_id, actor=by.user_id, after=OrderStatus.USED)
    return [(it or {}).get("key") for it in uses.values_list("values", flat=True)].count(key)


def _is_repeat(use: OrderEvent | None, by: Actor, key: str, program: str) -> bool:
    if use is None or use.actor_id != by.user_id:
        return False
    if not key:
        return bool(program) and use.reason.startswith(program)
    # Rows of earlier releases have a program's key behind its token.
    old_key = use.reason.partition(PROGRAM)[2].partition(" ")[2]
    return key == ((use.values or {}).get("key") or old_key)


# --- Undoing --------------------------------------------------------------------------------------


def may_undo_alone(use: OrderEvent | None, *, user_id: int | None, now: dt.datetime) -> bool:
    """Return whether somebody redeemed this and may still undo it without an operator."""
    return use is not None and use.actor_id == user_id and now - use.at <= UNDO_WITHIN


def undo(
    *,
    event_id: int,
    by: Actor,
    now: dt.datetime,
    why: str = "",
    is_operator: bool = False,
    merchants: frozenset[int] | None = None,
) -> Redeemable:
    """Undo one use of a voucher, which its buyer can then use; a repeat changes nothing.

    :raises OrderEvent.DoesNotExist: there is no such use.
    :raises NoSuchCode: its order has no code.
    :raises OtherMerchant: it is not a voucher of these merchants.
    :raises NotUndoable: nothing was changed.
    """
    use = OrderEvent.objects.select_related("order").get(pk=event_id, after=OrderStatus.USED)
    order, code = use.order, use.order.code or ""
    redeemable = find_by_code(code=code, merchants=merchants)
    if not ((is_operator and why) or may_undo_alone(use, user_id=by.user_id, now=now)):
        raise NotUndoable(redeemable)
    undone = Change(OrderStatus.PAID, by, now, why, is_undo=True)
    try:
        with transaction.atomic(durable=True):
            change_order(undone, sale_id=order.seckill_voucher_id, order_id=order.pk)
            # The lock of the order's row keeps apart other uses, and news of its money.
            money = Payment.objects.filter(order=order, settles=True, status__in=_GONE_BACK)
            later = order.events.filter(after=OrderStatus.USED, pk__gt=event_id)
            if money.exists() or later.exists():
                raise WrongState(OrderStatus.USED)
    except WrongState as error:
        found = find_by_code(code=code)
        last = found.last_event
        if last is None or (last.before, last.actor_id) != (OrderStatus.USED, by.user_id):
            raise NotUndoable(found) from error
        return found
    return find_by_code(code=code)


# --- A day at the counter -------------------------------------------------------------------------


def uses_on(day: dt.date) -> QuerySet[Any]:
    """Return what was redeemed on a day, newest first, and whether that was ``undone``."""
    midnights = [dt.datetime.combine(day + dt.timedelta(days=it), dt.time.min) for it in (0, 1)]
    since, until = map(timezone.make_aware, midnights)
    later = OrderEvent.objects.filter(order=OuterRef("order"), pk__gt=OuterRef("pk"))
    uses = OrderEvent.objects.filter(after=OrderStatus.USED, at__gte=since, at__lt=until)
    uses = uses.annotate(undone=Exists(later.filter(before=OrderStatus.USED)))
    return uses.select_related("order__seckill_voucher__voucher__merchant").order_by("-pk")
