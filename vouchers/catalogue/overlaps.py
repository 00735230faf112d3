"""Sales of one voucher whose windows overlap: allowed, but rarely intended."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Protocol

from vouchers.models import SaleStage, SeckillVoucher


class Window(Protocol):
    """Anything with a start and an end."""

    @property
    def begins_at(self) -> dt.datetime: ...

    @property
    def ends_at(self) -> dt.datetime: ...


def overlap(one: Window, other: Window) -> bool:
    """Say whether two windows overlap."""
    return one.begins_at < other.ends_at and other.begins_at < one.ends_at


def overlapping_sales(windows: Sequence[tuple[int, Window]]) -> list[list[SeckillVoucher]]:
    """Return the overlapping sales for each pair of voucher id and window, in one query.

    Rehearsals do not count.
    """
    if not windows:
        return []
    sales = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL).filter(
        voucher_id__in={voucher_id for voucher_id, _ in windows},
        begins_at__lt=max(window.ends_at for _, window in windows),
        ends_at__gt=min(window.begins_at for _, window in windows),
    )
    found = list(sales.order_by("begins_at", "pk"))
    return [
        [sale for sale in found if sale.voucher_id == voucher_id and overlap(sale, window)]
        for voucher_id, window in windows
    ]


def on_sale_now(*, voucher_ids: Iterable[int], now: dt.datetime) -> set[int]:
    """Return which of these vouchers have a running public sale."""
    sales = SeckillVoucher.objects.filter(
        voucher__in=list(voucher_ids), stage=SaleStage.PUBLIC, begins_at__lte=now, ends_at__gt=now
    )
    return set(sales.values_list("voucher_id", flat=True))
