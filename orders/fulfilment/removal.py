"""Removal: the ledger of a sale that is long over leaves Redis (``docs/adr/0049``)."""

import datetime as dt
import logging

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from orders.fulfilment.reconcile import BY_IDS_UP_TO, reconcile
from orders.models import OrderStatus
from seckill_site.failpoints import failpoint
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import raise_epoch
from vouchers.inventory.removal import remove_ledger
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import Draw, SeckillVoucher

_passes = Passes("remove_ledgers")

logger = logging.getLogger(__name__)


def remove_ledgers(*, now: dt.datetime) -> bool:
    """Remove the ledger of one sale that is long over; return whether some may be left."""
    before = now - dt.timedelta(days=settings.SECKILL_LEDGER_DAYS)
    is_over = Q(ends_at__lte=before) & (Q(ledger_back_at=None) | Q(ledger_back_at__lte=before))
    sales = SeckillVoucher.objects.filter(is_over, epoch__gt=0, ledger_removed_at=None)
    removed: list[int] = []

    def work(sale_id: int) -> bool:
        if not removed and _remove(sale_id, before):
            removed.append(sale_id)
        return bool(removed)

    return _passes.work(_passes.in_turn(sales.values_list("pk", flat=True)), work)


def _remove(sale_id: int, before: dt.datetime) -> bool:
    """Remove one ledger, unless something in it is needed; return whether it was removed.

    The row is held while one script compares and removes. Whatever changes either of them comes
    before, and the ledger stays, or waits, and finds the note in the row.
    """
    sale = SeckillVoucher.objects.get(pk=sale_id)
    if not _is_over(sale, before):
        return False
    # By ids, which takes long; large sales by their counts alone, once the row is held.
    found = reconcile(sale_id=sale_id) if sale.sold <= BY_IDS_UP_TO else None
    if found and found.remaining is not None and found.difference:
        logger.warning("sale %s: its ledger stays, as it differs by %s", sale_id, found.difference)
        return False
    failpoint("remove.compared")
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if not _is_over(sale, before):
            return False
        raise_epoch(sale)  # the fence refuses a worker that started before
        kept_by = remove_ledger(sale=sale, live=sale.orders.filter(live=True).count())
        failpoint("remove.unlinked")
        if not kept_by:
            sale.ledger_removed_at = sale.locked_at
            sale.save(update_fields=["epoch", "fence", "ledger_removed_at"])
    logger.info("sale %s: its ledger %s", sale_id, f"stays: {kept_by}" if kept_by else "left Redis")
    return not kept_by


def _is_over(sale: SeckillVoucher, before: dt.datetime) -> bool:
    """Return whether the rows of a sale leave nothing to its ledger."""
    draws = Draw.objects.filter(seckill_voucher=sale, finished_at=None)
    return (
        sale.gives_until <= before
        and not sale.ledger_removed_at
        and not (sale.is_draw and draws.exists())
        and not sale.orders.filter(status=OrderStatus.UNPAID).exists()
        and not sale.waiting_entries.filter(live=True).exists()
    )
