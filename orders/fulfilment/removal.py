"""Removal: the ledger of a sale that is long over leaves Redis (``docs/adr/0049``).

Note [Removing a ledger]
~~~~~~~~~~~~~~~~~~~~~~~~
Without this, Redis fills up with the buyers of earlier sales, and one day takes no order. A ledger
may go once everything in it is in rows: then it can be built again at any time, and the rows answer
for it. The epoch is raised first, so that the fence refuses a worker that started before. Then the
row is held while one script compares the ledger with it and removes it: a refund, an edit or a
retry either comes before, and the ledger stays, or after, and finds the row that says so. Whoever
dies in between leaves a ledger that is missing, or one that is still there: the next pass goes on.
"""

import datetime as dt
import logging
from collections.abc import Iterator
from itertools import islice

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from orders.models import OrderStatus, VoucherOrder
from seckill_site.failpoints import failpoint
from vouchers.inventory.holdings import scan_buyers
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import put_foreign_aside, raise_epoch
from vouchers.inventory.removal import RemoveCode, remove_ledger
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import Draw, SeckillVoucher

_AT_ONCE = 2_000
"""The buyers that are compared with rows in one statement."""

_passes = Passes("remove_ledgers")

logger = logging.getLogger(__name__)


def remove_ledgers(*, now: dt.datetime) -> bool:
    """Remove the ledger of one sale that is long over; for beat. Return whether some may be left.

    One that has to stay, or fails, does not stop the others.
    """
    before = now - dt.timedelta(days=settings.SECKILL_LEDGER_DAYS)
    is_over = Q(ends_at__lte=before) & (Q(ledger_back_at=None) | Q(ledger_back_at__lte=before))
    sales = SeckillVoucher.objects.filter(is_over, epoch__gt=0, ledger_removed_at=None)
    removed: list[int] = []

    def until_one_is_removed() -> Iterator[int]:
        for sale_id in _passes.in_turn(sales.values_list("pk", flat=True)):
            if removed:
                return
            yield sale_id

    def work(sale_id: int) -> bool:
        if _remove(sale_id, before):
            removed.append(sale_id)
        return bool(removed)

    return _passes.work(until_one_is_removed(), work)


def _remove(sale_id: int, before: dt.datetime) -> bool:
    """Remove one ledger; return False if something in it is still needed."""
    sale = SeckillVoucher.objects.get(pk=sale_id)
    sale.epoch += 1
    # First without the lock, so that a sale which stays for long costs no epochs.
    if not _is_over(sale, before) or not _is_alike(sale):
        return False
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        epoch = raise_epoch(sale)
        sale.save(update_fields=["epoch", "fence"])
    failpoint("remove.raised")
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if sale.epoch != epoch or not _is_over(sale, before):
            return False
        code = remove_ledger(sale=sale, live=_live(sale))
        failpoint("remove.unlinked")
        if code is not RemoveCode.REMOVED:
            return False
        sale.ledger_removed_at = sale.locked_at
        sale.save(update_fields=["ledger_removed_at"])
    logger.info("sale %s: its ledger left Redis", sale_id)
    return True


def _is_over(sale: SeckillVoucher, before: dt.datetime) -> bool:
    """Return whether the rows of a sale leave nothing to its ledger."""
    if sale.ledger_removed_at or sale.gives_until > before:
        return False
    if sale.is_draw and Draw.objects.filter(seckill_voucher=sale, finished_at=None).exists():
        return False
    is_unpaid = sale.orders.filter(status=OrderStatus.UNPAID).exists()
    return not is_unpaid and not sale.waiting_entries.filter(live=True).exists()


def _is_alike(sale: SeckillVoucher) -> bool:
    """Return whether the ledger, if it is there, has the live orders and nothing else."""
    put_foreign_aside(sale_id=sale.pk, identity=sale.identity)
    code = remove_ledger(sale=sale, live=_live(sale), only_look=True)
    if code is not RemoveCode.REMOVED:
        logger.info("sale %s: its ledger stays: %s", sale.pk, code.value.lower())
        return False
    buyers = scan_buyers(sale_id=sale.pk)
    while some := {it.order_id for it in islice(buyers, _AT_ONCE)}:
        live = VoucherOrder.objects.filter(pk__in=some, seckill_voucher=sale, live=True)
        if live.count() != len(some):
            logger.warning("sale %s: its ledger stays, because it differs from the rows", sale.pk)
            return False
    return True


def _live(sale: SeckillVoucher) -> int:
    return sale.orders.filter(live=True).count()
