"""Removal: a ledger whose sale is long over leaves Redis, and the sale's row answers from then on.

What to remove, ``orders/fulfilment/removal.py`` decides. A Redis that was restarted, or another one
in its place, may have older data: the ledgers that come back with it are removed again.
"""

import logging
from enum import StrEnum

from django.db import transaction

from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, ledger_errors, ledger_script, run_script
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import load_sale, put_foreign_aside
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

LOOKED_ON = "seckill:removals"
"""The run of Redis on which no removed ledger was left."""

_AT_ONCE = 1_000
_REMOVE = ledger_script("remove")
_passes = Passes("remove_again")


class RemoveCode(StrEnum):
    """The codes of ``remove.lua``."""

    REMOVED = "REMOVED"
    REBUILT = "REBUILT"
    PENDING = "PENDING"
    WAITING = "WAITING"
    UNSTORED = "UNSTORED"
    DIFFERS = "DIFFERS"


def remove_ledger(*, sale: SeckillVoucher, live: int | None, only_look: bool = False) -> RemoveCode:
    """Take a ledger out of Redis unless something would be lost. Safe to repeat.

    The caller holds the row, with an epoch above the ledger's, or may ``only_look``. ``live`` is
    the number of live orders, None if the ledger was removed before.
    """
    args = sale.epoch, "" if live is None else live, int(not only_look)
    return run_script(_REMOVE, LedgerKeys(sale.pk).removable, *args, read=RemoveCode)


def remove_again(*, run_id: str) -> bool:
    """Remove the ledgers that came back with an old Redis, once for each of its runs.

    Return whether some are left. One with pending entries, which may be in no row, is built anew,
    so that they become rows; it is removed later, as any other.
    """
    with ledger_errors():
        if ledger_connection().get(LOOKED_ON) == run_id:
            return False
    removed = SeckillVoucher.objects.filter(ledger_removed_at__isnull=False)
    ids = list(removed.order_by("pk").values_list("pk", flat=True))
    back = [pk for start in range(0, len(ids), _AT_ONCE) for pk in _back(ids[start:][:_AT_ONCE])]
    if back:
        return _passes.work(_passes.in_turn(back), _remove_again) or True
    with ledger_errors():
        ledger_connection().set(LOOKED_ON, run_id)
    return False


def _back(sale_ids: list[int]) -> list[int]:
    """Return those of these sales of which Redis has a ledger, or a part of one."""
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for keys in map(LedgerKeys, sale_ids):
            pipe.exists(keys.sale, keys.buyers, keys.pending)
        return [pk for pk, count in zip(sale_ids, pipe.execute(), strict=True) if count]


def _remove_again(sale_id: int) -> None:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if sale.ledger_removed_at is None:
            return
        put_foreign_aside(sale_id=sale_id, identity=sale.identity)
        code = remove_ledger(sale=sale, live=None)
    logger.warning("sale %s: its removed ledger came back: %s", sale_id, code.value.lower())
    if code is not RemoveCode.REMOVED:
        load_sale(sale_id=sale_id, bring_back=True)
