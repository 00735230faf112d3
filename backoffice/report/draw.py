"""The draw in the report of a sale."""

from dataclasses import dataclass

from django.db.models import Count, Q

from orders.draws.rules import commitment_of
from orders.models import DrawEntry
from vouchers.models import Draw, SeckillVoucher


@dataclass(frozen=True)
class DrawFigures:
    """Entries in a draw, and what anybody needs to check it."""

    draw: Draw
    entries: int
    withdrawn: int

    @property
    def units(self) -> int:
        """The vouchers to win, which are settled once the list is closed."""
        stock: int = self.draw.seckill_voucher.stock
        return stock if self.draw.units is None else self.draw.units

    @property
    def winners(self) -> int | None:
        return min(self.units, self.entries) if self.draw.drawn_at else None

    @property
    def commitment(self) -> str:
        return commitment_of(self.draw.seed)

    @property
    def seed(self) -> str:
        """The seed, which nobody learns before the draw."""
        return self.draw.seed if self.draw.drawn_at else ""


def read_draw(*, sale: SeckillVoucher) -> DrawFigures | None:
    """Return the figures of a sale's draw; None for a sale without a draw."""
    if not sale.is_draw:
        return None
    withdrawn = Q(outcome=DrawEntry.Outcome.WITHDRAWN)
    counts = DrawEntry.objects.filter(seckill_voucher=sale).aggregate(
        entries=Count("pk", filter=Q(live=True)), withdrawn=Count("pk", filter=withdrawn)
    )
    return DrawFigures(sale.draw, **counts)
