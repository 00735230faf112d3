"""Changing a sale while it runs: pause and resume, more time, more or fewer units, the end.

Each is ``edit_sale`` for one term: that says what is written to Redis first and what to the row.
Here it is refused where the sale is over, by the clock of Redis, and where the term is not what the
one who asks was shown: somebody was faster, or the same form came twice.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_lazy as _

from seckill_site.clock import from_epoch_ms
from vouchers.catalogue.refusals import StaffRefusal
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import snapshot
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher


class SaleOver(StaffRefusal):
    """The sale has ended, by the clock of Redis: its terms no longer change."""

    message = _("Nothing was changed: the sale has ended. To sell again, copy it.")


class NotBegun(StaffRefusal):
    """The sale has not started, by the clock of Redis, so there is nothing to end."""

    message = _(
        "Nothing was changed: the sale has not started, so there is nothing to "
        "end. Delete it or set it back to draft."
    )


class NotLater(StaffRefusal):
    """The new end is not after the present one."""

    message = _("Nothing was changed: the new end must be after the current one.")


class TermsChanged(StaffRefusal):
    """The sale is not as the page showed it: somebody was faster."""

    message = _(
        "Nothing was changed: someone else changed the sale first. Check its current state."
    )


def pause_sale(*, sale_id: int) -> SeckillVoucher:
    """Accept nobody until the sale is resumed; raises as ``_change``."""
    return _change(sale_id=sale_id, seen={"paused": False}, paused=True)


def resume_sale(*, sale_id: int) -> SeckillVoucher:
    """Go on with a sale that is paused; raises as ``_change``."""
    return _change(sale_id=sale_id, seen={"paused": True}, paused=False)


def extend_sale(*, sale_id: int, ends_at: dt.datetime, seen: dt.datetime) -> SeckillVoucher:
    """Let a sale end later than at the moment that was ``seen``; raises as ``_change``.

    :raises NotLater: the new end is not after the present one; nothing changed.
    """
    if ends_at <= seen:
        raise NotLater
    return _change(sale_id=sale_id, seen={"ends_at": seen}, ends_at=ends_at)


def resize_sale(*, sale_id: int, stock: int, seen: int) -> SeckillVoucher:
    """Offer so many units instead of those that were ``seen``; raises as ``_change``.

    :raises BelowTaken: fewer than are reserved or ordered; nothing changed.
    """
    return _change(sale_id=sale_id, seen={"stock": seen}, stock=stock)


def end_sale(*, sale_id: int, seen: dt.datetime) -> SeckillVoucher:
    """End a sale now, which was to end at the moment ``seen``; raises as ``_change``.

    :raises NotBegun: it has not begun; nothing changed.
    """
    with transaction.atomic():
        sale = _held(sale_id, seen={"ends_at": seen})
        if _ledger_now(sale_id) <= sale.begins_at:
            raise NotBegun
        terms = terms_of(sale)
        # Closed before the clock is read: every unit was accepted before the moment of the end.
        edit_sale(sale_id=sale_id, terms=replace(terms, paused=True))
        ends_at = _ledger_now(sale_id) + dt.timedelta(milliseconds=1)
        return edit_sale(sale_id=sale_id, terms=replace(terms, ends_at=ends_at))


def _change(*, sale_id: int, seen: dict[str, Any], **changes: Any) -> SeckillVoucher:
    """Change these terms of a sale that is not over and still is as it was seen.

    May be called inside a transaction: Redis follows what widens the sale when that is committed.

    :raises TermsChanged: it is not as it was seen; nothing changed.
    :raises SaleOver: it is over; nothing changed.
    :raises LedgerUnavailable: its ledger did not answer or is not loaded.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises django.core.exceptions.ValidationError: a rule of the model is broken.
    """
    with transaction.atomic():
        sale = _held(sale_id, seen)
        return edit_sale(sale_id=sale_id, terms=replace(terms_of(sale), **changes))


def _held(sale_id: int, seen: dict[str, Any]) -> SeckillVoucher:
    """Lock the row of a sale that is not over and is as it was seen."""
    sale = lock_seckill_voucher(sale_id=sale_id)
    if _ledger_now(sale_id) >= sale.ends_at:
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
