"""Sales and their edits: the only functions that write a sale's terms.

The order of the two writes is the point of this module (``docs/adr/0003``). A change that narrows a
sale (fewer units, a later start, an earlier end, a pause) goes to Redis first, while the row is
locked. A change that widens it goes to the row first and is copied after the commit, under a new
lock of the row. A crash in between leaves Redis with the narrower terms until it is reconciled.
"""

import datetime as dt
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_lazy as _

from seckill_site.clocks.ledger import ledger_now_ms, refresh_ledger_time
from seckill_site.clocks.machine import epoch_ms
from seckill_site.failpoints import failpoint
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.catalogue.audience import Audience
from vouchers.catalogue.listing import on_sale_now
from vouchers.catalogue.pictures import set_picture
from vouchers.catalogue.prices import close_to_reprice, lock_to_reprice
from vouchers.catalogue.rooms import date_room
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.chain import CHAIN_FIELDS, note_stock
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded, ledger_errors
from vouchers.inventory.rebuild import load_after_commit, note_back
from vouchers.inventory.sale_state import BelowTaken, LedgerTerms, snapshot, snapshots, write_terms
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.lock_objects import lock_seckill_voucher, lock_vouchers
from vouchers.models import (
    Draw,
    Merchant,
    RoomKind,
    SaleMode,
    SaleStage,
    SeckillVoucher,
    Voucher,
    Work,
)


class LimitLowered(StaffRefusal):
    """The limit per buyer can only be raised: buyers may hold units above a lower one."""

    message = _("Nothing was changed: the limit has been raised in the meantime.")


class SaleHasBuyers(StaffRefusal):
    """A sale that somebody has reserved or ordered from cannot be deleted."""

    message = _("The sale has buyers and cannot be deleted. Pause it instead.")


class StaysPublic(StaffRefusal):
    """A sale that somebody has reserved or ordered from cannot become a draft again."""

    message = _("The sale has orders, so it has to stay public. Pause it instead.")


class ModeIsSettled(StaffRefusal):
    """A sale that has started, or has buyers or entries, keeps its mode."""

    message = _("Nothing was changed: the sale has started or has entries, so its mode is settled.")


class ListIsClosed(StaffRefusal):
    """The list of a draw is closed: its window and the units to win are settled."""

    message = _(
        "Nothing was changed: the list of entries is closed, so the draw keeps its window and "
        "at least as many vouchers."
    )


class VoucherOnSale(StaffRefusal):
    """A voucher that any sale sells now is changed only by staff who can run sales."""

    message = _("This voucher is on sale now. Only staff who can run sales may change it.")


class OrderIsDrawn(StaffRefusal):
    """The order of a waiting room is settled once the sale has started."""

    message = _("Nothing was changed: the order of the line is settled once the sale has started.")


@dataclass(frozen=True)
class SaleTerms(Audience):
    """The terms of a sale that the shop decides; datetimes are aware, ``stock`` is in units."""

    stock: int
    begins_at: dt.datetime
    ends_at: dt.datetime
    limit: int = 1
    paused: bool = False
    pay_within_s: int = 15 * 60
    rebuy: bool = True
    refundable: bool = True
    refund_unused: bool | None = True
    extendable: bool = True
    stage: str = SaleStage.PUBLIC
    room: str = RoomKind.OFF
    room_rate: int = 200
    room_shuffled: bool = False
    work: int = Work.NONE
    per_address: int | None = None
    mode: str = SaleMode.FIRST_COME
    draw_wait_s: int = 0


@dataclass(frozen=True)
class VoucherDetails:
    """The description of a voucher; amounts in integer cents, the picture an uploaded file.

    Without a picture, a voucher keeps the one it has, unless ``remove_picture``; without a merchant
    it keeps its own, and a new one gets the default merchant.
    """

    title: str
    rules: str
    price_cents: int
    face_value_cents: int
    picture: bytes | None = None
    remove_picture: bool = False
    merchant: Merchant | None = None
    title_en: str = ""
    rules_en: str = ""
    valid_where: str = ""
    valid_until: dt.date | None = None


FACTS = ("merchant", "title_en", "rules_en", "valid_where", "valid_until")
"""Fields of ``VoucherDetails`` that a new voucher may leave empty."""

_DETAILS = ("title", "rules", "price_cents", "face_value_cents", *FACTS[1:])
_TERMS = tuple(field.name for field in fields(SaleTerms))
_LINE = ("room_opened_ms", "room_base", "room_since_ms")


def create_sale(*, voucher: Voucher, terms: SaleTerms) -> SeckillVoucher:
    """Put a voucher on sale and load the sale into Redis after the commit.

    :raises django.core.exceptions.ValidationError: a rule of the model is broken.
    """
    with transaction.atomic():
        sale = insert_sale(voucher=voucher, terms=terms)
        transaction.on_commit(partial(load_after_commit, sale_ids=[sale.pk]))
    return sale


def insert_sale(*, voucher: Voucher, terms: SaleTerms) -> SeckillVoucher:
    """Write the row of a new sale; the caller loads it after the commit.

    :raises django.core.exceptions.ValidationError: a rule of the model is broken.
    """
    sale = SeckillVoucher(voucher=voucher, **{name: getattr(terms, name) for name in _TERMS})
    date_room(sale, before=None, now_ms=_now_ms(sale))
    sale.full_clean()
    with transaction.atomic():
        sale.save(force_insert=True)
        if sale.is_draw:
            Draw.of(sale)
    return sale


def create_voucher_on_sale(*, details: VoucherDetails, terms: SaleTerms) -> SeckillVoucher:
    """Create a voucher and its sale, both or neither; raises as ``create_sale``.

    :raises UnusablePicture: the picture cannot be shown.
    """
    voucher = Voucher()
    with transaction.atomic():
        _write_details(voucher, details)
        return create_sale(voucher=voucher, terms=terms)


def edit_sale(
    *,
    sale_id: int,
    terms: SaleTerms,
    details: VoucherDetails | None = None,
    may_run: bool = True,
    check: Callable[[SeckillVoucher], None] = lambda _locked: None,
) -> SeckillVoucher:
    """Change a sale's terms, also while it runs, and its voucher's description if given.

    ``check`` gets the locked sale with its voucher, and refuses what was made from another state.

    ``sold`` is never touched, and orders keep their price. Inside a transaction, such as the
    admin's, what widens the sale reaches Redis after the commit. Without ``may_run``, a voucher
    that another sale sells now keeps its description. A new price closes all sales of the voucher
    until the commit: Note [One price per order].

    :raises VoucherOnSale: its description would change, without ``may_run``; nothing changed.
    :raises BelowTaken: the stock would fall below what is reserved or ordered; nothing changed.
    :raises LimitLowered: the limit would fall; nothing changed.
    :raises UnusablePicture: the new picture cannot be shown; nothing changed.
    :raises OrderIsDrawn: the order of the waiting room would change after the start.
    :raises ModeIsSettled: the mode would change after the start, or with entries; nothing changed.
    :raises ListIsClosed: the terms of a draw would change whose list is closed; nothing changed.
    :raises StaysPublic: it would become a draft again and has buyers; nothing changed.
    :raises OrdersOnTheirWay: the price would change; the caller tries again (``once_at_rest``).
    :raises PriceIsSettled: the price would change, and a draw of the voucher has entries.
    :raises LedgerUnavailable: the edit narrows or brings a removed ledger back, and Redis did not
        respond or has no ledger.
    :raises django.core.exceptions.ValidationError: a rule of the model is broken.
    """
    with transaction.atomic():
        locked: list[SeckillVoucher] = []
        if details:
            voucher_id = SeckillVoucher.objects.values_list("voucher", flat=True).get(pk=sale_id)
            locked = lock_to_reprice(prices={voucher_id: details.price_cents})
        sale = lock_seckill_voucher(sale_id=sale_id)
        if details:
            [sale.voucher] = lock_vouchers(voucher_ids=[sale.voucher_id])
        check(sale)
        if terms.limit < sale.limit:
            raise LimitLowered
        if terms.stock < sale.sold:
            raise BelowTaken(sale.sold)
        edited = copy(sale)
        for name in _TERMS:
            setattr(edited, name, getattr(terms, name))
        now_ms = _now_ms(edited)
        date_room(edited, before=sale, now_ms=now_ms)
        if epoch_ms(sale.begins_at) <= now_ms and _reorders(sale, edited):
            raise OrderIsDrawn
        _check_draw(sale, edited)
        edited.full_clean()
        repriced = _edit_voucher(edited, details, may_run=may_run) if details else []
        # After all other refusals: a rollback does not undo a write to Redis.
        _check_untouched(sale, edited, now_ms)
        _narrow(sale, edited)
        failpoint("edit.narrowed")
        transaction.on_commit(partial(failpoint, "edit.committed"))
        close_to_reprice(voucher_ids=repriced, locked=locked)
        edited.note_sold_out(sale.locked_at)
        note_stock(edited, before=sale.stock)
        edited.save(update_fields=(*_TERMS, *_LINE, "sold_out_at", *CHAIN_FIELDS))
        transaction.on_commit(partial(load_after_commit, sale_ids=[sale_id]))
    return edited


def _now_ms(sale: SeckillVoucher) -> int:
    """Return the time of Redis; its last answer may be from before a jump of its clock."""
    if sale.room != RoomKind.OFF:
        refresh_ledger_time()
    return ledger_now_ms()


def _reorders(sale: SeckillVoucher, edited: SeckillVoucher) -> bool:
    """Return whether an edit changes the order of the line of a room that stays open."""
    before, after = RoomTerms.from_sale(sale), RoomTerms.from_sale(edited)
    return before is not None and after is not None and before.shuffled != after.shuffled


def _check_untouched(sale: SeckillVoucher, edited: SeckillVoucher, now_ms: int) -> None:
    """Refuse an edit for which the sale must have neither buyers nor entries; raises as above."""
    withdrawn = (sale.stage, edited.stage) == (SaleStage.PUBLIC, SaleStage.DRAFT)
    if withdrawn and _close_unless_bought(sale):
        raise StaysPublic
    if edited.mode == sale.mode:
        return
    if epoch_ms(sale.begins_at) <= now_ms or _close_unless_bought(sale):
        raise ModeIsSettled
    if edited.is_draw:
        Draw.of(sale)


def _check_draw(sale: SeckillVoucher, edited: SeckillVoucher) -> None:
    """Refuse an edit that a closed list rules out.

    :raises ListIsClosed: the window would change, or fewer units would be offered than are drawn.
    """
    draw = Draw.objects.filter(seckill_voucher=sale, closed_at__isnull=False).first()
    if draw is None:
        return
    moves = (sale.begins_at, sale.ends_at) != (edited.begins_at, edited.ends_at)
    if moves or (not draw.finished_at and edited.stock < (draw.units or 0)):
        raise ListIsClosed


def _narrow(sale: SeckillVoucher, edited: SeckillVoucher) -> None:
    """Let the ledger allow no more than the sale does before and after an edit."""
    figures = LedgerTerms.from_sale(sale)
    narrowed = figures.narrowed_to(LedgerTerms.from_sale(edited))
    if sale.ledger_removed_at:  # it allows nothing, and nobody can load it while the row is held
        if (sale.stock, sale.gives_until) != (edited.stock, edited.gives_until):
            note_back(edited)
    elif narrowed != figures:
        _write_locked_terms(sale, narrowed)


def stage_sale(
    *,
    sale_id: int,
    stage: SaleStage,
    check: Callable[[SeckillVoucher], None] = lambda _locked: None,
) -> SeckillVoucher:
    """Make a draft public, so that buyers see it, or withdraw it; as ``edit_sale``."""
    with transaction.atomic():
        sale = lock_seckill_voucher(sale_id=sale_id)
        check(sale)
        return edit_sale(sale_id=sale_id, terms=replace(terms_of(sale), stage=stage))


def terms_of(sale: SeckillVoucher) -> SaleTerms:
    """Return the terms as this row has them."""
    return SaleTerms(**{name: getattr(sale, name) for name in _TERMS})


def delete_sale(*, sale_id: int) -> None:
    """Delete a sale that nobody has reserved or ordered from, in the database and in Redis.

    :raises SaleHasBuyers: somebody has reserved or ordered.
    :raises LedgerUnavailable: Redis did not respond, or the sale is not loaded.
    """
    keys = LedgerKeys(sale_id)
    with transaction.atomic():
        sale = lock_seckill_voucher(sale_id=sale_id)
        if _close_unless_bought(sale):
            raise SaleHasBuyers
        with ledger_errors():
            ledger_connection().unlink(*keys.movable, keys.fence)
        sale.delete()


def has_buyers(*, sale: SeckillVoucher) -> bool:
    """Return whether anybody has reserved, ordered or entered; True if Redis does not respond."""
    if sale.orders.exists() or sale.draw_entries.exists():
        return True
    try:
        live = snapshots(sale_ids=[sale.pk])[sale.pk]
    except LedgerUnavailable:
        return True
    return sale.sold > 0 or bool(live and (live.taken or live.entries))


def units_taken(*, sale: SeckillVoucher) -> int | None:
    """Return the units that are reserved or ordered; None if Redis does not respond."""
    try:
        live = snapshots(sale_ids=[sale.pk])[sale.pk]
    except LedgerUnavailable:
        return None
    return max(sale.sold, live.taken if live else 0)


def is_stored(voucher: Voucher | None, name: str, value: Any) -> bool:
    """Return whether this value is stored already; line endings make no difference."""
    stored = getattr(voucher, name, None)
    if isinstance(stored, str):
        return stored.splitlines() == str(value).splitlines()
    return bool(stored == value)


def _changes(voucher: Voucher, details: VoucherDetails) -> bool:
    """Return whether this description differs from the voucher's."""
    if details.picture or details.remove_picture:
        return True
    given = [*_DETAILS, "merchant"] if details.merchant else _DETAILS
    return not all(is_stored(voucher, name, getattr(details, name)) for name in given)


def _edit_voucher(sale: SeckillVoucher, details: VoucherDetails, *, may_run: bool) -> list[int]:
    """Write the description of the sale's voucher; return its id if it has a new price."""
    running = not may_run and on_sale_now(voucher_ids=[sale.voucher_id], now=sale.locked_at)
    if running and _changes(sale.voucher, details):
        raise VoucherOnSale
    is_repriced = sale.voucher.price_cents != details.price_cents
    _write_details(sale.voucher, details)
    return [sale.voucher_id] if is_repriced else []


def _write_details(voucher: Voucher, details: VoucherDetails) -> None:
    for name in _DETAILS:
        setattr(voucher, name, getattr(details, name))
    voucher.merchant = details.merchant or voucher.merchant or Merchant.default()
    voucher.full_clean()
    voucher.save(update_fields=(*_DETAILS, "merchant") if voucher.pk else None)
    if details.picture or details.remove_picture:
        set_picture(voucher=voucher, content=details.picture)


def _close_unless_bought(sale: SeckillVoucher) -> bool:
    """Return whether the sale has buyers or entries; if not, close its ledger to them."""
    if sale.orders.exists() or sale.draw_entries.exists():
        return True
    if sale.ledger_removed_at:
        return False
    figures = LedgerTerms.from_sale(sale)
    _write_locked_terms(sale, replace(figures, paused=True))
    closed = snapshot(sale_id=sale.pk)
    is_bought = closed.taken > 0 or closed.entries > 0
    if is_bought:
        _write_locked_terms(sale, figures)
    return is_bought


def _write_locked_terms(sale: SeckillVoucher, figures: LedgerTerms) -> None:
    """Write terms to the ledger, without a price; never a total below the units taken."""
    figures = replace(figures, price_cents=None)  # it is copied after the commit
    try:
        write_terms(sale_id=sale.pk, terms=figures, refuse_below_taken=figures.total < sale.stock)
    except NotLoaded as error:
        # It cannot be built here: this transaction may still be rolled back.
        raise LedgerUnavailable("the sale is not loaded") from error
