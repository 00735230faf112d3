"""How an entry in a draw stands, until it has an order."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from orders.draws.rules import ticket
from orders.models import DrawEntry, WaitingEntry
from seckill_site.clocks.machine import epoch_ms
from vouchers.inventory.draw_entries import read_entry
from vouchers.models import Draw, SeckillVoucher

NOT_DRAWN = "not_drawn"
"""The reason of an entry that did not win, and does not wait."""


class Stage(Enum):
    """What has become of an entry."""

    ENTERED = auto()
    WON = auto()
    WAITING = auto()
    OUT = auto()


class Standing(NamedTuple):
    """The stage of an entry, and with ``OUT`` the reason. ``ends_at_ms`` is the sale's end."""

    stage: Stage
    ends_at_ms: int
    reason: str = ""


def is_winner(*, draw: Draw, entry_id: int) -> bool:
    """Return whether an entry of the list has won; the draw is drawn."""
    return ticket(seed=draw.seed, digest=draw.digest, entry_id=entry_id) <= draw.cutoff


def standing_of(*, sale_id: int, order_id: int, user_id: int) -> Standing | None:
    """Return how a buyer's entry stands; None if there is none.

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
    stage = _stage(sale, order_id)
    return Standing(stage, ends_at_ms, NOT_DRAWN if stage is Stage.OUT else "")


def _stage(sale: SeckillVoucher, order_id: int) -> Stage:
    draw = Draw.of(sale)
    if not draw.drawn_at:
        return Stage.ENTERED
    if is_winner(draw=draw, entry_id=order_id):
        return Stage.WON
    wait = WaitingEntry.objects.filter(order_id=order_id).first()
    if wait:
        by_outcome = {"": Stage.WAITING, WaitingEntry.Outcome.OFFERED.value: Stage.WON}
        return by_outcome.get(wait.outcome, Stage.OUT)
    if sale.draw_wait_s and not draw.finished_at:
        return Stage.ENTERED  # the others wait once all winners have their orders
    return Stage.OUT
