"""Whether a sale is public, which its row alone says; a process asks for that once a second."""

from time import monotonic

from vouchers.models import SaleStage, SeckillVoucher

PUBLIC_S = 1.0
"""How long a process remembers whether a sale is public."""

MOST_SALES = 1_000

_public: dict[int, tuple[bool, float]] = {}


def recall_public(*, sale_id: int) -> bool | None:
    """Return whether the sale is public, as this process knows; None if it has to ask."""
    found, read_at = _public.get(sale_id, (False, -PUBLIC_S))
    return found if monotonic() - read_at < PUBLIC_S else None


def was_public(*, sale_id: int) -> bool:
    """Return whether the sale was public when this process last asked.

    No public sale becomes a draft again, so this is enough for what a public sale has told already.
    """
    return _public.get(sale_id, (False, 0.0))[0]


def learn_public(*, sale_id: int) -> bool:
    """Ask the database whether the sale is public, and remember it."""
    read_at = monotonic()
    sales = SeckillVoucher.objects.filter(pk=sale_id, stage=SaleStage.PUBLIC)
    found = sales.exists()
    if len(_public) >= MOST_SALES:
        _public.clear()
    _public[sale_id] = found, read_at
    return found
