"""Restart watch: rebuilding the ledgers that Redis had on an earlier run.

After a restart or failover, Redis may hold older data than before (a stale replica, or an
append-only file without its last second). A ledger therefore records the run id of the server on
which it was built. If another run responds, every ledger on it is rebuilt. Until then only the
database's guards hold.
"""

import datetime as dt
import logging

from django.db import transaction

from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import STATE, LedgerKeys, ledger_errors
from vouchers.inventory.passes import Passes
from vouchers.inventory.rebuild import current_run_id, rebuild_sale
from vouchers.inventory.removal import remove_again
from vouchers.inventory.sale_state import parse_state
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

_passes = Passes("watch_ledger")


def rebuild_after_restart(*, now: dt.datetime) -> bool:
    """Rebuild ledgers of another run of Redis or of another sale with the same id, for a pass.

    Return whether some are left. One sale that fails does not stop the others; the next call tries
    it again.
    """
    active = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now)).order_by("pk")
    sales = list(active.values_list("pk", "identity"))
    run_id = current_run_id()
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for sale_id, _ in sales:
            # In this order: a build in between then looks as if it was on the current run, and is.
            pipe.hget(LedgerKeys(sale_id).buyers, STATE)
            pipe.hget(LedgerKeys(sale_id).sale, "run_id")
        replies = pipe.execute(raise_on_error=False)
    epochs = {}
    for (sale_id, identity), text, built_on in zip(sales, replies[::2], replies[1::2], strict=True):
        # A missing ledger (or a key of a wrong type) is loaded by its first buyer or by reconcile.
        state = parse_state(text)
        if state and (built_on, state["identity"]) != (run_id, str(identity)):
            epochs[sale_id] = state["epoch"]

    def rebuild(sale_id: int) -> None:
        logger.warning("sale %s: its ledger is of another run or sale, rebuilding it", sale_id)
        rebuild_sale(sale_id=sale_id, epoch=epochs[sale_id])

    is_left = _passes.work(_passes.in_turn(epochs), rebuild)
    return remove_again(run_id=run_id) or is_left


def is_same_ledger(*, sale_id: int, loaded_at_ms: int) -> bool:
    """Return whether the ledger loaded at that time still exists, on the server's current run."""
    keys = LedgerKeys(sale_id)
    with ledger_errors(), ledger_connection().pipeline(transaction=True) as pipe:
        state, built_on = pipe.hget(keys.buyers, STATE).hget(keys.sale, "run_id").execute()
    loaded = parse_state(state).get("loaded_at_ms")
    return (loaded, built_on) == (str(loaded_at_ms), current_run_id())


def is_ledger_behind_row(*, sale_id: int) -> bool:
    """Return whether a ledger exists that has numbered fewer batches than the sale's row stores.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        with ledger_errors():
            state_text = ledger_connection().hget(LedgerKeys(sale_id).buyers, STATE)
    state = parse_state(state_text)
    return bool(state) and int(state["batch"]) < sale.batch
