"""The sweep: resend pending work that has waited too long, whatever happened to its message.

Because of it, no lost message loses an order: Note [Accepted means ended] in ``worker.py``.
"""

import datetime as dt

from orders.placing.publishing import publish_fulfilment
from seckill_site.installation import check_owner
from vouchers.inventory.keys import ledger_errors
from vouchers.inventory.reservations import claim_due_sweeps
from vouchers.models import SeckillVoucher


def sweep(*, now: dt.datetime, long_over: bool = False, at_once: bool = False) -> list[int]:
    """Publish a fulfil task for each sale whose oldest pending entry has waited too long.

    ``claim_sweep.lua`` decides. Ended sales are swept too: those ``long_over`` separately, and less
    often. ``at_once`` waits for nothing: a worker has started, and the others may all have died.
    Each sale has at most one task queued, so this is one message for a sale that is late: it
    needs no bound.

    :raises LedgerUnavailable: Redis did not respond; the next sweep comes in seconds.
    """
    with ledger_errors():
        check_owner()
    active = SeckillVoucher.still_active(now)
    sales = SeckillVoucher.objects.filter(~active if long_over else active, epoch__gt=0)
    sales = sales.filter(ledger_removed_at=None)
    ids = sales.order_by("pk").values_list("pk", flat=True)
    due = claim_due_sweeps(sale_ids=ids, at_once=at_once)
    for sale_id in due:
        publish_fulfilment(sale_id=sale_id)
    return due
