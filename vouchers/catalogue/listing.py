"""The list of sales with the units left of each, in one query and one round trip to Redis."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet

from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.sale_state import shown_snapshots
from vouchers.models import SaleStage, SaleState, SeckillVoucher

_ORDER = (
    SaleState.OPEN,
    SaleState.SCHEDULED,
    SaleState.SOLD_OUT,
    SaleState.PAUSED,
    SaleState.ENDED,
)
LISTED = 100
"""The most sales on the list."""


@dataclass(frozen=True)
class SaleCard:
    """A sale as the list shows it; ``remaining`` and ``pending`` are None while not loaded."""

    sale: SeckillVoucher
    state: SaleState
    total: int
    remaining: int | None
    pending: int | None

    @property
    def searched_text(self) -> str:
        """The words by which a sale is found, in both languages."""
        voucher = self.sale.voucher
        return f"{voucher.title} {voucher.title_en} {voucher.merchant or ''}".casefold()


def list_sales(*, now: dt.datetime) -> list[SaleCard]:
    """Return the sales: open, scheduled, sold out, paused, then those that just ended.

    Within each group, the earliest start comes first.
    """
    sales = _with_vouchers().filter(stage=SaleStage.PUBLIC)
    current = list(sales.filter(ends_at__gt=now).order_by("begins_at", "pk")[:LISTED])
    day_ago = now - dt.timedelta(days=1)
    over = list(sales.filter(ends_at__lte=now, ends_at__gt=day_ago).order_by("-ends_at")[:LISTED])
    return sorted(cards(sales=current + over, now=now), key=lambda card: _ORDER.index(card.state))


def public_sale(*, sale_id: int, drafts_too: bool = False) -> SeckillVoucher:
    """Return a public sale, with its voucher; with ``drafts_too``, for staff, also a draft.

    :raises SeckillVoucher.DoesNotExist: it does not exist, or not for this visitor.
    """
    stages = (SaleStage.PUBLIC, SaleStage.DRAFT) if drafts_too else (SaleStage.PUBLIC,)
    return _with_vouchers().get(pk=sale_id, stage__in=stages)


def cards(*, sales: Iterable[SeckillVoucher], now: dt.datetime) -> list[SaleCard]:
    """Return a card for each sale, from the row alone if the ledger does not respond."""
    sales = list(sales)
    try:
        live = shown_snapshots(sales=sales)
    except LedgerUnavailable:
        live = {}
    return [
        SaleCard(sale, it.state, it.terms.total, it.remaining, it.pending)
        if (it := live.get(sale.pk))
        else SaleCard(sale, sale.state_at(now), sale.stock, None, None)
        for sale in sales
    ]


def running_sales(*, voucher_ids: Iterable[int], now: dt.datetime) -> QuerySet[SeckillVoucher]:
    """Return the public sales of these vouchers that have started and are not over."""
    return (
        SeckillVoucher.objects.select_related("voucher")
        .filter(voucher__in=list(voucher_ids), stage=SaleStage.PUBLIC)
        .filter(begins_at__lte=now, ends_at__gt=now)
        .order_by("begins_at", "pk")
    )


def on_sale_now(*, voucher_ids: Iterable[int], now: dt.datetime) -> set[int]:
    """Return which of these vouchers have a running public sale."""
    return set(running_sales(voucher_ids=voucher_ids, now=now).values_list("voucher", flat=True))


def _with_vouchers() -> QuerySet[SeckillVoucher]:
    """Return the sales with their vouchers and pictures, but without the pictures' bytes."""
    sales = SeckillVoucher.objects.select_related("voucher__picture", "voucher__merchant")
    return sales.defer("voucher__picture__content")
