"""The watch over Redis itself: a server that was restarted or replaced may have gone back in time.

A ledger remembers the run of the server that it was built on. Where another run answers, it may be
an older copy (a stale replica, an AOF that misses its last second): every ledger on it is built
anew from the database and what survived. Until the watch fires, only the database's guards hold.
"""

from __future__ import annotations

import datetime as dt
import logging

from django.db import DatabaseError, transaction

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_errors
from vouchers.inventory.rebuild import current_run_id, rebuild_sale
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)


def rebuild_after_restart(*, now: dt.datetime) -> list[int]:
    """Build anew each running sale's ledger that was built on another run of Redis.

    One sale that fails does not stop the rest; the next watch goes on with it. Returns the sales.

    :raises LedgerUnavailable: Redis did not answer.
    """
    loaded = SeckillVoucher.objects.filter(SeckillVoucher.not_long_over(now), epoch__gt=0)
    sale_ids = list(loaded.order_by("pk").values_list("pk", flat=True))
    run_id = current_run_id()
    rebuilt = []
    for sale_id, built_on in zip(sale_ids, _built_on(sale_ids), strict=True):
        if built_on in (None, run_id):  # none is not loaded: its first buyer or reconcile does that
            continue
        logger.warning("sale %s: its ledger is of another run of Redis, building it anew", sale_id)
        try:
            rebuild_sale(sale_id=sale_id)
            rebuilt.append(sale_id)
        except (LedgerUnavailable, DatabaseError, SeckillVoucher.DoesNotExist) as error:
            logger.warning("sale %s is not rebuilt now: %s", sale_id, error)
    return rebuilt


def _built_on(sale_ids: list[int]) -> list[str | None]:
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for sale_id in sale_ids:
            pipe.hget(LedgerKeys(sale_id).sale, "run_id")
        found = pipe.execute(raise_on_error=False)
    # A key of a wrong type is no ledger.
    return [value if isinstance(value, str) else None for value in found]


def is_believable(*, sale_id: int, loaded_at_ms: int) -> bool:
    """Say whether the ledger is still the one that was loaded then, on the server's present run.

    :raises LedgerUnavailable: Redis did not answer.
    """
    names = ["loaded_at_ms", "run_id"]
    with ledger_errors():
        found = ledger_connection().hmget(LedgerKeys(sale_id).sale, names)
    return bool(found == [str(loaded_at_ms), current_run_id()])


def is_behind_its_row(*, sale_id: int) -> bool:
    """Say whether a ledger stands that knows fewer batches of its sale than the row does.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not answer.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        with ledger_errors():
            known = ledger_connection().hget(LedgerKeys(sale_id).sale, "batch")
    return known is not None and int(known) < sale.batch
