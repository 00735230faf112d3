"""Taking a ledger out of Redis, again if an old Redis brings it back (``docs/adr/0049``)."""

import logging

from django.db import transaction

from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, ledger_errors, ledger_script, run_script
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import load_sale, put_foreign_aside
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

LOOKED_ON = "seckill:removals"
"""The run of Redis on which no removed ledger was left."""

logger = logging.getLogger(__name__)

_REMOVE = ledger_script("remove")
_passes = Passes("remove_again")


def remove_ledger(*, sale: SeckillVoucher, live: int | None) -> str:
    """Take a ledger out of Redis, or return what in it would be lost. Safe to repeat.

    The caller holds the row, with an epoch above the ledger's. ``live`` is the number of live
    orders, None if the ledger was removed before.
    """
    put_foreign_aside(sale_id=sale.pk, identity=sale.identity)
    keys, args = LedgerKeys(sale.pk), (sale.epoch, "" if live is None else live)
    return run_script(_REMOVE, [*keys.movable, keys.fence], *args, read=str)


def remove_again(*, run_id: str) -> bool:
    """Remove the ledgers that came back with an old Redis, once for each of its runs.

    Return whether some are left. One with pending entries is built anew, so that they become rows.
    """
    with ledger_errors():
        if ledger_connection().get(LOOKED_ON) == run_id:
            return False
        removed = SeckillVoucher.objects.filter(ledger_removed_at__isnull=False)
        ids = list(removed.values_list("pk", flat=True))
        with ledger_connection().pipeline(transaction=False) as pipe:
            for keys in map(LedgerKeys, ids):
                pipe.exists(keys.sale, keys.buyers, keys.pending)
            back = [pk for pk, count in zip(ids, pipe.execute(), strict=True) if count]
        if not back:
            ledger_connection().set(LOOKED_ON, run_id)
            return False
    _passes.work(_passes.in_turn(back), _remove_again)
    return True


def _remove_again(sale_id: int) -> None:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        kept_by = remove_ledger(sale=sale, live=None) if sale.ledger_removed_at else ""
    logger.warning("sale %s: its removed ledger came back: %s", sale_id, kept_by or "removed again")
    if kept_by:
        load_sale(sale_id=sale_id, bring_back=True)
