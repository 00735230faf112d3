"""Revenue, the same three figures on every page: gross, refunds and net.

Orders have prices; what a provider did with a payment is in the payments. A payment that came too
late for its order never was revenue, and its way back is no refund of an order.
"""

from dataclasses import dataclass
from pathlib import Path

from django.db.models import Q

from backoffice.figures import Figure, yuan
from orders.models import OrderStatus
from seckill_site.web.text_files import read_texts

_FIGURES = read_texts(Path(__file__).with_name("revenue_texts.toml"))

REFUNDED_STATUSES = (OrderStatus.REFUNDING, OrderStatus.REFUNDED)
EVER_PAID = (OrderStatus.PAID, OrderStatus.USED, *REFUNDED_STATUSES)

PAYMENT = Q(before=OrderStatus.UNPAID, after=OrderStatus.PAID)
REFUND = Q(before=OrderStatus.PAID, after=OrderStatus.REFUNDING)
"""The changes of an order by which revenue has a time. Other events only tell of an order."""


@dataclass(frozen=True)
class Revenue:
    """The prices of orders that were ever paid, and of those of them whose refund has started."""

    gross_cents: int
    refunded_cents: int

    @property
    def net_cents(self) -> int:
        return self.gross_cents - self.refunded_cents


def revenue_figures(revenue: Revenue) -> list[Figure]:
    """Return gross, refunds and net, in this order."""
    texts = _FIGURES.items()
    return [yuan(str(it["label"]), getattr(revenue, name), str(it["note"])) for name, it in texts]
