"""Redeeming: the shop accepts a voucher's code once."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.core.cache import cache
from django.db import transaction

from orders.lifecycle.transitions import Actor, Change, WrongState, change_order
from orders.models import CODE_LENGTH, OrderEvent, OrderStatus, VoucherOrder

MAX_WRONG_CODES, WINDOW_S = 30, 60
"""The most wrong codes that a member of staff may type per window."""

_SEEN_AS = str.maketrans({"O": "0", "I": "1", "L": "1", "U": "V"})


class NoSuchCode(Exception):
    """No order has this code."""


class TooManyGuesses(Exception):
    """Too many wrong codes were typed; the next may be typed after ``retry_after_s``."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"{MAX_WRONG_CODES} wrong codes; go on in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class GuessesUnknown(Exception):
    """The cache, which counts wrong codes, does not respond, so no code is accepted."""


class NotRedeemable(Exception):
    """The voucher was used before, or is being refunded; ``found`` is its order as it is now."""

    def __init__(self, found: Redeemable) -> None:
        super().__init__(f"the order is {found.order.status}")
        self.found = found


@dataclass(frozen=True)
class Redeemable:
    """An order with its last change, as staff see it at the counter."""

    order: VoucherOrder
    last_event: OrderEvent | None

    @property
    def may_be_used(self) -> bool:
        return self.order.status == OrderStatus.PAID


def read_code(text: str) -> str:
    """Return a typed code as it is stored, regardless of case, dashes and letters like O for 0.

    A scanner at the counter types the whole address from the QR code. The code is its fragment,
    which no browser sends and so no server logs.
    """
    typed = unicodedata.normalize("NFKC", text).rpartition("code=")[2].upper()
    return "".join(it for it in typed if it.isascii() and it.isalnum()).translate(_SEEN_AS)


def written_code(code: str) -> str:
    """Return a code as people read it, in groups of four."""
    return "-".join(code[i : i + 4] for i in range(0, CODE_LENGTH, 4))


def find_by_code(*, code: str) -> Redeemable:
    """Return the order of a code, whatever its state.

    :raises NoSuchCode: no voucher has this code.
    """
    stored = read_code(code)
    orders = VoucherOrder.objects.select_related("seckill_voucher__voucher", "user")
    order = orders.filter(code=stored).first() if len(stored) == CODE_LENGTH else None
    if order is None:
        raise NoSuchCode("no order has this code")
    return Redeemable(order, order.events.select_related("actor").order_by("pk").last())


def redeem(*, code: str, by: Actor, now: dt.datetime) -> Redeemable:
    """Use a paid voucher; of two concurrent attempts one succeeds.

    :raises NoSuchCode: no order has this code.
    :raises NotRedeemable: it was used before, or is being refunded; nothing was changed.
    """
    order = find_by_code(code=code).order
    try:
        with transaction.atomic(durable=True):
            used = Change(OrderStatus.USED, by, now)
            change_order(used, sale_id=order.seckill_voucher_id, order_id=order.pk)
    except WrongState as error:
        raise NotRedeemable(find_by_code(code=code)) from error
    return find_by_code(code=code)


@contextmanager
def counted_guess(*, user_id: int, now: dt.datetime) -> Iterator[None]:
    """Allow one guess at a code, and count it if it is wrong.

    It is counted first and uncounted if the code exists, so concurrent guesses gain nothing.

    :raises TooManyGuesses: ``MAX_WRONG_CODES`` guesses in this window were wrong.
    :raises GuessesUnknown: the cache did not respond.
    """
    window, second = divmod(int(now.timestamp()), WINDOW_S)
    key = f"redeem-wrong:{user_id}:{window}"
    cache.add(key, 0, timeout=2 * WINDOW_S)
    guesses = _count(key, 1)
    if guesses is None:
        raise GuessesUnknown("the cache did not count the guess")
    if guesses > MAX_WRONG_CODES:
        raise TooManyGuesses(WINDOW_S - second)
    try:
        yield
    except NoSuchCode:
        raise
    except BaseException:
        _count(key, -1)
        raise
    _count(key, -1)


def _count(key: str, by: int) -> int | None:
    """Add to a counter and return it; None if the cache does not respond or has lost it."""
    try:
        count: int | None = cache.incr(key, by)
    except ValueError:
        return None
    return count
