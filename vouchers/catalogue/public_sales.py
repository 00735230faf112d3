"""What only the row of a sale says of it; a process asks for that once a second."""

from time import monotonic
from typing import NamedTuple

from seckill_site.process_memory import Memory
from vouchers.catalogue.audience import EVERYBODY, SALE_RULES, Audience
from vouchers.models import SaleStage, SeckillVoucher

KNOWN_S = 1.0
"""How long a process remembers the row of a sale."""


class KnownSale(NamedTuple):
    """Whether a sale is public, the work that its tokens ask for, and who gets one."""

    is_public: bool
    work: int = 0
    audience: Audience = EVERYBODY

    def check_public(self) -> None:
        """Hide a sale that is not public.

        :raises SeckillVoucher.DoesNotExist: it is not.
        """
        if not self.is_public:
            raise SeckillVoucher.DoesNotExist("the sale is not public")


_NOT_PUBLIC = KnownSale(is_public=False)

_known = Memory[int, KnownSale](most=1_000, for_s=KNOWN_S)


def recall_sale(*, sale_id: int) -> KnownSale | None:
    """Return the sale as this process knows it; None if it has to ask."""
    return _known.recall(sale_id)


def was_public(*, sale_id: int) -> bool:
    """Return whether the sale was public when this process last asked the database."""
    return (_known.last(sale_id) or _NOT_PUBLIC).is_public


def learn_sale(*, sale_id: int) -> KnownSale:
    """Ask the database for the sale, and remember it."""
    read_at = monotonic()
    rows = SeckillVoucher.objects.filter(pk=sale_id, stage=SaleStage.PUBLIC)
    row = rows.values("work", *(it.field for it in SALE_RULES)).first()
    known = KnownSale(True, row.pop("work"), Audience(**row)) if row else _NOT_PUBLIC
    _known.keep(sale_id, known, until=read_at + _known.for_s)
    return known
