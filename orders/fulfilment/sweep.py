"""The sweep: what is pending for too long is sent again, whatever became of its message."""

from __future__ import annotations

import datetime as dt
from typing import Protocol

from vouchers.inventory.reservations import claim_due_sweeps
from vouchers.models import SeckillVoucher


class Publish(Protocol):
    """Sends the fulfil task of one sale."""

    def __call__(self, *, sale_id: int) -> None: ...


def sweep(*, publish: Publish, now: dt.datetime, long_over: bool = False) -> list[int]:
    """Publish one fulfil task for each sale whose oldest pending entry has waited too long.

    Sales that are over are swept too; those ``long_over`` apart from the others, and less often.
    The kick is the buyers' own, so at most one unexpired task is on its way to each sale. Returns
    the sales.

    :raises LedgerUnavailable: Redis did not answer; the next sweep comes in seconds.
    """
    changing = SeckillVoucher.still_active(now)
    sales = SeckillVoucher.objects.filter(~changing if long_over else changing, epoch__gt=0)
    due = claim_due_sweeps(sale_ids=sales.order_by("pk").values_list("pk", flat=True))
    for sale_id in due:
        publish(sale_id=sale_id)
    return due
