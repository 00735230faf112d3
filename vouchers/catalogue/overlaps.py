"""Sales of one voucher whose windows overlap: allowed, but seldom meant."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from django.db.models import QuerySet

from vouchers.models import SaleStage, SeckillVoucher


def overlapping(
    *,
    voucher_ids: Iterable[int],
    begins_at: dt.datetime,
    ends_at: dt.datetime,
) -> QuerySet[SeckillVoucher]:
    """Return the sales of these vouchers that overlap with a window; a rehearsal is no sale."""
    sales = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL)
    within = sales.filter(begins_at__lt=ends_at, ends_at__gt=begins_at)
    return within.filter(voucher_id__in=set(voucher_ids)).order_by("begins_at", "pk")


def on_sale_now(*, voucher_ids: Iterable[int], now: dt.datetime) -> set[int]:
    """Return which of these vouchers have a public sale that has begun and is not over."""
    sales = SeckillVoucher.objects.filter(
        voucher__in=list(voucher_ids), stage=SaleStage.PUBLIC, begins_at__lte=now, ends_at__gt=now
    )
    return set(sales.values_list("voucher_id", flat=True))
