"""Remove the traces of a rehearsal: the shadow sale, its voucher, its buyers and their orders.

The shadow's own row records the progress, so any process can continue at any time. The order of
the steps matters: stop buying, stop writing, delete the orders with the ledger, then the buyers,
and last the row that leads to all of them.
"""

import datetime as dt
import logging
import time
from collections.abc import Iterable
from contextlib import suppress

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Model

from backoffice.rehearsal.buyers import BUYERS_AT_ONCE, buyers_of
from locks import LockBusy, LockNotOwned
from orders.models import OrderEvent, Payment, SandboxTrade, VoucherOrder, WaitingEntry
from seckill_site.failpoints import failpoint
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors
from vouchers.inventory.rebuild import sale_lock
from vouchers.inventory.sale_state import LedgerTerms, snapshots, write_terms
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import AnswerCount, SaleStage, SeckillVoucher, Voucher

logger = logging.getLogger(__name__)

ORDERS_AT_ONCE, SCANNED_AT_ONCE = 1_000, 1_000
REMOVING_S = 2.0
"""Seconds that one call spends on removing buyers."""

WORKER_WAIT = dt.timedelta(seconds=10)
"""Time after closing for workers to finish the shadow's orders before they are deleted."""

STATS_WAIT = dt.timedelta(seconds=2)
"""Time after closing in which a web process may still add to the request statistics."""

LOCK_MS = 3_000
"""Longest wait for a worker that is writing orders of the shadow."""


def clear_shadow(*, shadow_id: int, now: dt.datetime) -> bool:
    """Continue the cleanup and return whether nothing is left. Safe to repeat and to run twice.

    A sale that is not a shadow is left alone.

    :raises LedgerUnavailable: Redis did not respond; the next call continues.
    :raises django.db.Error: the database did not respond; the next call continues.
    """
    shadow = SeckillVoucher.objects.filter(pk=shadow_id).first()
    if shadow is None:
        _forget_keys(shadow_id)
        return _delete_buyers(shadow_id)
    if shadow.stage != SaleStage.REHEARSAL:
        logger.error("sale %s is no longer a shadow: it stays, with its buyers", shadow_id)
        return True
    if shadow.ends_at > now:
        _close(shadow, now)
        return False
    closed_for = now - shadow.ends_at
    if not _is_quiet(shadow_id) and closed_for < WORKER_WAIT:
        return False
    if not (_delete_orders(shadow) and _delete_buyers(shadow_id)) or closed_for < STATS_WAIT:
        return False
    return _delete_shadow(shadow_id)


def _close(shadow: SeckillVoucher, now: dt.datetime) -> None:
    """End the shadow sale, so that its ledger accepts nobody, even after a rebuild.

    This is not an edit, because an edit refuses an oversold sale.
    """
    with transaction.atomic(durable=True):
        shadow = lock_seckill_voucher(sale_id=shadow.pk)
        shadow.ends_at, shadow.sold = now, min(shadow.sold, shadow.stock)
        with suppress(NotLoaded):
            write_terms(sale_id=shadow.pk, terms=LedgerTerms.from_sale(shadow))
        shadow.save(update_fields=["ends_at", "sold"])
    failpoint("clear.closed")


def _is_quiet(shadow_id: int) -> bool:
    """Return whether nothing is pending and no fulfil task is queued."""
    ledger = snapshots(sale_ids=[shadow_id])[shadow_id]
    with ledger_errors():
        kicked = ledger_connection().exists(LedgerKeys(shadow_id).kick)
    return not kicked and not (ledger and ledger.pending)


def _delete_orders(shadow: SeckillVoucher) -> bool:
    """Delete the shadow's orders and ledger; return False while a worker is writing them.

    The ledger goes first, because reconcile would write orders again for its buyers.
    """
    keys = LedgerKeys(shadow.pk)
    with ledger_errors():
        has_ledger = ledger_connection().exists(keys.sale, *keys.contents)
        if not (has_ledger or shadow.orders.exists()):
            return True
        lock = sale_lock(sale_id=shadow.pk, epoch=shadow.epoch)
        try:
            with lock.holding(wait_ms=LOCK_MS):
                _delete_locked(shadow.pk, lock.fencing_token or 0)
        except (LockBusy, LockNotOwned):
            return False
    failpoint("clear.orders_deleted")
    return True


def _delete_locked(shadow_id: int, fencing_token: int) -> None:
    """Delete the rows that need the lock; the fence rejects a worker that has lost it."""
    with transaction.atomic(durable=True):
        shadow = lock_seckill_voucher(sale_id=shadow_id)
        _forget_keys(shadow_id, but=LedgerKeys(shadow_id).sale_lock)
        orders = VoucherOrder.objects.filter(seckill_voucher=shadow).order_by("pk")
        while ids := list(orders.values_list("pk", flat=True)[:ORDERS_AT_ONCE]):
            _delete_with_references(ids)
        WaitingEntry.objects.filter(seckill_voucher=shadow).delete()
        AnswerCount.objects.filter(seckill_voucher=shadow).delete()
        shadow.sold, shadow.fence = 0, max(shadow.fence, fencing_token)
        shadow.save(update_fields=["sold", "fence"])
        failpoint("clear.before_commit")


def _delete_with_references(order_ids: list[int]) -> None:
    payments = Payment.objects.filter(order__in=order_ids)
    references = list(payments.values_list("reference", flat=True))
    SandboxTrade.objects.filter(reference__in=references).delete()
    payments.delete()
    OrderEvent.objects.filter(order__in=order_ids).delete()
    _delete_log(VoucherOrder, order_ids)
    VoucherOrder.objects.filter(pk__in=order_ids).delete()


def _delete_log(model: type[Model], ids: Iterable[int]) -> None:
    kind = ContentType.objects.get_for_model(model)
    LogEntry.objects.filter(content_type=kind, object_id__in=[str(pk) for pk in ids]).delete()


def _delete_buyers(shadow_id: int) -> bool:
    """Delete buyers for ``REMOVING_S`` and return whether none is left."""
    until = time.monotonic() + REMOVING_S
    buyers = buyers_of(shadow_id=shadow_id)
    while ids := list(buyers.values_list("pk", flat=True)[:BUYERS_AT_ONCE]):
        if time.monotonic() > until:
            return False
        buyers.filter(pk__in=ids).delete()
        failpoint("clear.buyers_deleted")
    return True


def _delete_shadow(shadow_id: int) -> bool:
    """Delete the row and its voucher; return False if somebody has bought in the meantime."""
    with transaction.atomic(durable=True):
        shadow = lock_seckill_voucher(sale_id=shadow_id)
        if shadow.orders.exists():
            return False
        AnswerCount.objects.filter(seckill_voucher=shadow).delete()
        _delete_log(SeckillVoucher, [shadow_id])
        _delete_log(Voucher, [shadow.voucher_id])
        shadow.delete()
        Voucher.objects.filter(pk=shadow.voucher_id).delete()
    failpoint("clear.shadow_deleted")
    _forget_keys(shadow_id)
    return True


def _forget_keys(shadow_id: int, *, but: str = "") -> None:
    """Delete all keys of the shadow, with locks and fence, except those that start with ``but``."""
    client = ledger_connection()
    with ledger_errors():
        all_keys = list(client.scan_iter(f"*seckill:{{{shadow_id}}}:*", count=SCANNED_AT_ONCE))
        keys = [key for key in all_keys if not but or not key.startswith(but)]
        for first in range(0, len(keys), SCANNED_AT_ONCE):
            client.unlink(*keys[first : first + SCANNED_AT_ONCE])
