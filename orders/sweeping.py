"""The sweep: what is pending for too long is sent again, whatever became of its message."""

from __future__ import annotations

from typing import Protocol

from django.conf import settings

from vouchers.models import SeckillVoucher
from vouchers.reservations import kick, overdue_sales


class Publish(Protocol):
    """Sends the fulfil task of one sale."""

    def __call__(self, *, sale_id: int) -> None: ...


def sweep(*, publish: Publish) -> list[int]:
    """Publish one fulfil task for each sale whose oldest pending entry has waited too long.

    Ended sales are swept too. The kick is the buyers' own, so at most one unexpired task is on its
    way to each sale. Returns the sales.

    :raises LedgerUnavailable: Redis did not answer; the next sweep comes in seconds.
    """
    loaded = SeckillVoucher.objects.filter(epoch__gt=0).order_by("pk").values_list("pk", flat=True)
    overdue = overdue_sales(sale_ids=loaded, older_than_ms=settings.SECKILL_SWEEP_AGE_MS)
    swept = []
    for sale_id in overdue:
        if kick(sale_id=sale_id):
            publish(sale_id=sale_id)
            swept.append(sale_id)
    return swept
