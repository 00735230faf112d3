"""The status of an entry in a draw, until it has an order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django.db.models import Exists, OuterRef, TextChoices
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from orders.draws.rules import ticket
from orders.models import DrawEntry, VoucherOrder, WaitingEntry
from seckill_site.clocks.machine import epoch_ms
from vouchers.inventory.draw_entries import read_entry
from vouchers.models import Draw, SeckillVoucher

MOST_ENTRIES = 20

NOT_DRAWN = "not_drawn"
"""The reason of an entry that did not win, and does not wait."""


class Stage(TextChoices):
    """The stage of an entry: its status in a receipt, and in words."""

    ENTERED = "entered", _("in the draw")
    WON = "queued", _("won")
    WAITING = "waiting", _("on the waiting list")
    OUT = "refused", _("not drawn")


class Standing(NamedTuple):
    """The stage of an entry, and with ``OUT`` the reason. ``ends_at_ms`` is the sale's end."""

    stage: Stage
    ends_at_ms: int
    reason: str = ""


def is_winner(*, draw: Draw, entry_id: int) -> bool:
    """Return whether an entry of the list has won; the draw is drawn."""
    return ticket(seed=draw.seed, digest=draw.digest, entry_id=entry_id) <= draw.cutoff


def standing_of(*, sale_id: int, order_id: int, user_id: int) -> Standing | None:
    """Return the standing of a buyer's entry; None if the buyer has not entered.

    :raises LedgerUnavailable: it has no row, and Redis did not respond.
    """
    sale = SeckillVoucher.objects.select_related("draw").filter(pk=sale_id).first()
    if sale is None or not sale.is_draw:
        return None
    ends_at_ms = epoch_ms(sale.ends_at)
    row = DrawEntry.objects.filter(pk=order_id, seckill_voucher=sale, user=user_id).first()
    if row is None:
        known = read_entry(sale_id=sale_id, user_id=user_id)
        is_known = known is not None and known.order_id == order_id
        return Standing(Stage.ENTERED, ends_at_ms) if is_known else None
    if not row.live:
        return Standing(Stage.OUT, ends_at_ms, row.outcome)
    stage = _stage(sale, order_id, _waits([(sale, order_id)]))
    return Standing(stage, ends_at_ms, NOT_DRAWN if stage is Stage.OUT else "")


def entry_id_of(*, sale_id: int, user_id: int) -> int | None:
    """Return the id of a buyer's entry in a draw; None without one.

    :raises LedgerUnavailable: it has no row, and Redis did not respond.
    """
    rows = DrawEntry.objects.filter(seckill_voucher=sale_id, user=user_id, live=True)
    known = rows.first() or read_entry(sale_id=sale_id, user_id=user_id)
    return known.order_id if known else None


class OwnEntry(NamedTuple):
    """A buyer's entry without an order, for the list of their orders."""

    order_id: int
    sale: SeckillVoucher
    entered_at: dt.datetime
    stage: Stage

    @property
    def label(self) -> str | Promise:
        return self.stage.label


def entries_of(*, user_id: int) -> list[OwnEntry]:
    """Return a buyer's latest entries that have no order, newest first."""
    orders = VoucherOrder.objects.filter(pk=OuterRef("pk"))
    rows = DrawEntry.objects.filter(~Exists(orders), user=user_id, live=True)
    rows = rows.select_related("seckill_voucher__voucher", "seckill_voucher__draw")
    return standings(rows.order_by("-pk")[:MOST_ENTRIES])


def standings(rows: Iterable[DrawEntry]) -> list[OwnEntry]:
    """Return these live entries, read with their sales and draws, as their owner may see them."""
    entries = [(row.seckill_voucher, row) for row in rows]
    waits = _waits([(sale, row.order_id) for sale, row in entries])
    return [
        OwnEntry(row.order_id, sale, row.entered_at, _stage(sale, row.order_id, waits))
        for sale, row in entries
    ]


def _waits(entries: Iterable[tuple[SeckillVoucher, int]]) -> dict[int, str]:
    """Return the outcomes of those of these entries that came to wait, in one query."""
    drawn = [order_id for sale, order_id in entries if sale.draw.drawn_at]
    rows = WaitingEntry.objects.filter(order_id__in=drawn)
    return dict(rows.values_list("order_id", "outcome"))


def _stage(sale: SeckillVoucher, order_id: int, waits: Mapping[int, str]) -> Stage:
    draw = sale.draw
    if not draw.drawn_at:
        return Stage.ENTERED
    if is_winner(draw=draw, entry_id=order_id):
        return Stage.WON
    if order_id in waits:
        by_outcome = {"": Stage.WAITING, WaitingEntry.Outcome.OFFERED.value: Stage.WON}
        return by_outcome.get(waits[order_id], Stage.OUT)
    if sale.draw_wait_s and not draw.finished_at:
        return Stage.ENTERED  # the others wait once all winners have their orders
    return Stage.OUT
