"""Redeeming: the shop takes a voucher's code and gives what it is worth, once."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.core.cache import cache
from django.db import transaction
from django.utils import timezone

from orders.lifecycle.transitions import Actor, WrongState, change_order
from orders.models import CODE_LENGTH, OrderEvent, OrderStatus, VoucherOrder

MOST_WRONG, WINDOW_S = 30, 60
"""So many wrong codes one member of staff may type in a minute."""

_SEEN_AS = str.maketrans({"O": "0", "I": "1", "L": "1", "U": "V"})


class NoSuchCode(Exception):
    """No order has this code."""


class TooManyGuesses(Exception):
    """Somebody has typed too many wrong codes; may go on after ``retry_after_s``."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


class GuessesUnknown(Exception):
    """The cache, which counts wrong codes, is away: until it is back no code is looked at."""


class NotRedeemable(Exception):
    """The voucher is used already, or is being refunded; ``found`` is its order as it is now."""

    def __init__(self, found: Redeemable) -> None:
        super().__init__(found.order.status)
        self.found = found


@dataclass(frozen=True)
class Redeemable:
    """An order as the staff member at the counter needs to see it, and its last change."""

    order: VoucherOrder
    last_event: OrderEvent | None

    @property
    def may_be_used(self) -> bool:
        return self.order.status == OrderStatus.PAID


def read_code(text: str) -> str:
    """Return a code as it is stored: typed in small letters, with dashes, or O for 0.

    A scanner at the counter types the whole address that the QR code holds.
    """
    typed = unicodedata.normalize("NFKC", text).rpartition("code=")[2].upper()
    return "".join(it for it in typed if it.isascii() and it.isalnum()).translate(_SEEN_AS)


def written_code(code: str) -> str:
    """Return a code as people read it, in groups of four."""
    return "-".join(code[i : i + 4] for i in range(0, CODE_LENGTH, 4))


def find_by_code(*, code: str) -> Redeemable:
    """Return the order of a code, whatever its state.

    :raises NoSuchCode: there is none.
    """
    stored = read_code(code)
    orders = VoucherOrder.objects.select_related("seckill_voucher__voucher", "user")
    order = orders.filter(code=stored).first() if len(stored) == CODE_LENGTH else None
    if order is None:
        raise NoSuchCode
    return Redeemable(order, order.events.select_related("actor").last())


def redeem(*, code: str, by: Actor) -> Redeemable:
    """Use a paid voucher; of two who try at the same time one succeeds.

    :raises NoSuchCode: no order has this code.
    :raises NotRedeemable: it is used already, or is being refunded; nothing was changed.
    """
    order = find_by_code(code=code).order
    try:
        with transaction.atomic(durable=True):
            change_order(
                sale_id=order.seckill_voucher_id,
                order_id=order.pk,
                to=OrderStatus.USED,
                by=by,
                at=timezone.now(),
            )
    except WrongState as error:
        raise NotRedeemable(find_by_code(code=code)) from error
    return find_by_code(code=code)


@contextmanager
def counted_guess(*, user_id: int, now: dt.datetime) -> Iterator[None]:
    """Let somebody look at a code, and count it where it is wrong.

    It is counted first and taken back where the code is right: many guesses at once get no further
    than one after the other.

    :raises TooManyGuesses: as many as one may make in a minute were wrong.
    :raises GuessesUnknown: the cache did not answer.
    """
    window, second = divmod(int(now.timestamp()), WINDOW_S)
    key = f"redeem-wrong:{user_id}:{window}"
    cache.add(key, 0, timeout=2 * WINDOW_S)
    guesses = _count(key, 1)
    if guesses is None:
        raise GuessesUnknown
    if guesses > MOST_WRONG:
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
    """Add to a counter; None where the cache is away, or came back without it."""
    try:
        count: int | None = cache.incr(key, by)
    except ValueError:
        return None
    return count
