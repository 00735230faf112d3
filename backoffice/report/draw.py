"""The draw in the report of a sale."""

import datetime as dt
from dataclasses import dataclass

from django.db.models import Count, Q

from orders.draws.rules import commitment_of
from orders.models import DrawEntry
from vouchers.models import SeckillVoucher


@dataclass(frozen=True)
class DrawFigures:
    """Entries in a draw, and what anybody needs to check it; ``seed`` is empty before the draw."""

    entries: int
    withdrawn: int
    units: int | None
    closed_at: dt.datetime | None
    drawn_at: dt.datetime | None
    finished_at: dt.datetime | None
    commitment: str
    digest: str
    seed: str

    @property
    def winners(self) -> int | None:
        return min(self.units or 0, self.entries) if self.drawn_at else None


def read_draw(*, sale: SeckillVoucher) -> DrawFigures | None:
    """Return the figures of a sale's draw; None for a sale without a draw."""
    if not sale.is_draw:
        return None
    draw = sale.draw
    withdrawn = Q(outcome=DrawEntry.Outcome.WITHDRAWN)
    counts = DrawEntry.objects.filter(seckill_voucher=sale).aggregate(
        live=Count("pk", filter=Q(live=True)), withdrawn=Count("pk", filter=withdrawn)
    )
    return DrawFigures(
        entries=counts["live"],
        withdrawn=counts["withdrawn"],
        units=draw.units,
        closed_at=draw.closed_at,
        drawn_at=draw.drawn_at,
        finished_at=draw.finished_at,
        commitment=commitment_of(draw.seed),
        digest=draw.digest,
        seed=draw.seed if draw.drawn_at else "",
    )
