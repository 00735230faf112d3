"""What anybody may see of a draw."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache

from orders.draws.record import DrawRecord
from orders.draws.rules import commitment_of, drawn_order
from orders.models import DrawEntry
from vouchers.catalogue.listing import public_sale
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.sale_state import snapshots
from vouchers.models import SeckillVoucher

KEPT_RECORDS = 4
"""The records that a process keeps: each is some two megabytes for 100,000 entries."""


class NoDraw(Exception):
    """The sale is not a draw."""


class ListOpen(Exception):
    """The list of entries is not closed yet."""


@dataclass(frozen=True)
class PublishedDraw:
    """A draw as it is published; ``entries`` is None if it is not known now.

    ``digest`` and ``units`` are settled when the list is closed; ``seed`` is empty before the draw.
    """

    sale: SeckillVoucher
    commitment: str
    entries: int | None
    units: int
    digest: str
    seed: str
    closed_at: dt.datetime | None
    drawn_at: dt.datetime | None

    @property
    def winners(self) -> int | None:
        """The number of entries that won; None before the draw."""
        return min(self.units, self.entries or 0) if self.drawn_at else None


def find_draw(*, sale_id: int) -> PublishedDraw:
    """Return what anybody may see of a sale's draw.

    :raises SeckillVoucher.DoesNotExist: there is no such sale for buyers.
    :raises NoDraw: it is no draw.
    """
    sale = public_sale(sale_id=sale_id)
    if not sale.is_draw:
        raise NoDraw(f"sale {sale_id} is no draw")
    draw = sale.draw
    return PublishedDraw(
        sale=sale,
        commitment=commitment_of(draw.seed),
        entries=draw.entries if draw.closed_at else _entries_now(sale_id),
        units=sale.stock if draw.units is None else draw.units,
        digest=draw.digest,
        seed=draw.seed if draw.drawn_at else "",
        closed_at=draw.closed_at,
        drawn_at=draw.drawn_at,
    )


def _entries_now(sale_id: int) -> int | None:
    try:
        ledger = snapshots(sale_ids=[sale_id])[sale_id]
    except LedgerUnavailable:
        return None
    return ledger.entries if ledger else None


def record_text(*, sale_id: int) -> str:
    """Return the record of a draw whose list is closed.

    :raises ListOpen: the list is not closed yet.
    :raises: what :func:`find_draw` raises.
    """
    published = find_draw(sale_id=sale_id)
    if not published.closed_at:
        raise ListOpen(f"the list of draw {sale_id} is open")
    return _record(sale_id, published.commitment, published.digest, published.units, published.seed)


@lru_cache(maxsize=KEPT_RECORDS)
def _record(sale_id: int, commitment: str, digest: str, units: int, seed: str) -> str:
    rows = DrawEntry.objects.filter(seckill_voucher=sale_id, live=True)
    ids = sorted(rows.values_list("order_id", flat=True))
    if seed:
        ids = drawn_order(seed=seed, digest=digest, entry_ids=ids)
    return "".join(DrawRecord(sale_id, commitment, digest, units, seed, ids).lines())
