"""Changes of a running sale: pause, resume, extend, resize, end.

Each calls ``edit_sale`` for one term, and raises what that raises. Inside a transaction, a change
that widens the sale reaches Redis after the commit. A change is also refused

- with ``SaleOver``, if the sale is over by the clock of Redis;
- with ``TermsChanged``, if the term is not the one that the page showed.
"""

import datetime as dt
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_lazy as _

from seckill_site.clocks.machine import from_epoch_ms
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import snapshot
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import RoomKind, SeckillVoucher


class SaleOver(StaffRefusal):
    """The sale has ended, by the clock of Redis: its terms no longer change."""

    message = _("Nothing was changed: the sale has ended. To sell again, copy it.")


class SaleNotStarted(StaffRefusal):
    """The sale has not started, by the clock of Redis, so there is nothing to end."""

    message = _(
        "Nothing was changed: the sale has not started, so there is nothing to "
        "end. Delete it or set it back to draft."
    )


class NotLater(StaffRefusal):
    """The new end is not after the current one."""

    message = _("Nothing was changed: the new end must be after the current one.")


class TermsChanged(StaffRefusal):
    """The sale is not as the page showed it: somebody was faster, or the form was sent twice."""

    message = _(
        "Nothing was changed: someone else changed the sale first. Check its current state."
    )


def pause_sale(*, sale_id: int) -> SeckillVoucher:
    """Pause a sale: nobody is accepted until it is resumed."""
    return _change(sale_id=sale_id, seen={"paused": False}, paused=True)


def resume_sale(*, sale_id: int) -> SeckillVoucher:
    """Resume a paused sale."""
    return _change(sale_id=sale_id, seen={"paused": True}, paused=False)


def extend_sale(*, sale_id: int, ends_at: dt.datetime, seen: dt.datetime) -> SeckillVoucher:
    """Move the end that was ``seen`` to a later moment.

    :raises NotLater: the new end is not after the current one; nothing changed.
    """
    if ends_at <= seen:
        raise NotLater
    return _change(sale_id=sale_id, seen={"ends_at": seen}, ends_at=ends_at)


def resize_sale(*, sale_id: int, stock: int, seen: int) -> SeckillVoucher:
    """Offer ``stock`` units instead of the number ``seen``.

    :raises BelowTaken: fewer than are reserved or ordered; nothing changed.
    """
    return _change(sale_id=sale_id, seen={"stock": seen}, stock=stock)


def open_room(*, sale_id: int, rate: int) -> SeckillVoucher:
    """Open the waiting room of a sale, with this many people let in per second."""
    return _change(sale_id=sale_id, seen={"room": RoomKind.OFF}, room=RoomKind.BUSY, room_rate=rate)


def change_room_rate(*, sale_id: int, rate: int, seen: int) -> SeckillVoucher:
    """Let ``rate`` people in per second instead of the number ``seen``."""
    return _change(sale_id=sale_id, seen={"room_rate": seen}, room_rate=rate)


def close_room(*, sale_id: int) -> SeckillVoucher:
    """Close the waiting room of a sale: everybody is let in."""
    return _change(sale_id=sale_id, seen={}, room=RoomKind.OFF)


def end_sale(*, sale_id: int, seen: dt.datetime) -> SeckillVoucher:
    """End a sale now instead of at the moment ``seen``.

    :raises SaleNotStarted: it has not started; nothing changed.
    """
    with transaction.atomic():
        sale = _lock_unchanged(sale_id, {"ends_at": seen})
        if _ledger_now(sale_id) <= sale.begins_at:
            raise SaleNotStarted
        terms = terms_of(sale)
        # Close it before reading the clock, so that every unit was accepted before the end.
        edit_sale(sale_id=sale_id, terms=replace(terms, paused=True))
        ends_at = _ledger_now(sale_id) + dt.timedelta(milliseconds=1)
        return edit_sale(sale_id=sale_id, terms=replace(terms, ends_at=ends_at))


def _change(*, sale_id: int, seen: dict[str, Any], **changes: Any) -> SeckillVoucher:
    with transaction.atomic():
        sale = _lock_unchanged(sale_id, seen)
        return edit_sale(sale_id=sale_id, terms=replace(terms_of(sale), **changes))


def _lock_unchanged(sale_id: int, seen: dict[str, Any]) -> SeckillVoucher:
    """Lock the row of a sale that is not over and has the terms ``seen``."""
    sale = lock_seckill_voucher(sale_id=sale_id)
    if sale.ledger_removed_at or _ledger_now(sale_id) >= sale.ends_at:
        raise SaleOver
    if any(getattr(sale, name) != value for name, value in seen.items()):
        raise TermsChanged
    return sale


def _ledger_now(sale_id: int) -> dt.datetime:
    try:
        now_ms = snapshot(sale_id=sale_id).now_ms
    except NotLoaded as error:
        raise LedgerUnavailable("the sale is not loaded") from error
    return from_epoch_ms(now_ms)
