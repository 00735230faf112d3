"""Loading: from the database into Redis, for a new sale and for one whose ledger was lost.

The row is held ``FOR UPDATE`` from reading the orders until the ledger stands, because an order
committed in between would sell its unit twice; and its epoch rises, so that a fulfilment which
started on the old ledger is refused by the fence.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.db import transaction

from seckill_site.lua import LuaScript, ledger_connection
from vouchers.figures import Figures, write_figures
from vouchers.ledger import LUA, SENTINEL, LedgerKeys, LedgerUnavailable, NotLoaded, ledger_errors
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher
from vouchers.reservations import ENDED_RETENTION_MS

logger = logging.getLogger(__name__)

FENCE_BITS = 32
"""A fencing token is the epoch above so many bits of counter."""

SIDE_KEY_SECONDS = 120
"""A build that dies leaves side keys; they go by themselves after this."""

LOADING_MS = 3_000
"""While one process loads a sale for its first buyer, the others answer *unavailable* so long."""

_LOAD = LuaScript(LUA / "load.lua")
_CHUNK = 5_000


@dataclass
class _Contents:
    """What a ledger is built from: fields of ``buyers``, ``pending`` with times, ``ended``."""

    buyers: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)


def load_sale(*, sale_id: int) -> None:
    """Make the ledger stand and its figures be the row's: build it, or just copy the figures.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not answer; the next call goes on.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        try:
            write_figures(sale_id=sale_id, figures=Figures.of(sale))
        except NotLoaded:
            build_ledger(sale=sale)


def load_for_buyer(*, sale_id: int) -> None:
    """Load a sale for the first request that found none; one process at a time does the work.

    :raises LedgerUnavailable: another process is at it, or Redis did not answer.
    """
    with ledger_errors():
        mine = ledger_connection().set(LedgerKeys(sale_id).loading, "1", nx=True, px=LOADING_MS)
    if not mine:
        raise LedgerUnavailable("the sale is being loaded")
    load_sale(sale_id=sale_id)
    with ledger_errors():
        ledger_connection().delete(LedgerKeys(sale_id).loading)


def load_after_commit(*, sale_id: int) -> None:
    """Load a sale just saved; where Redis is out of reach its first request or reconcile will."""
    try:
        load_sale(sale_id=sale_id)
    except LedgerUnavailable:
        logger.warning("sale %s is saved but not loaded: Redis did not answer", sale_id)


def build_ledger(*, sale: SeckillVoucher) -> None:
    """Build the ledger of a sale whose row the caller holds ``FOR UPDATE``, and install it.

    Live orders and what survived of buyers and pending go in. A buyer without a live order goes
    (back) to pending, never to release: fulfilment decides.
    """
    contents = _collect(sale=sale)
    _raise_epoch(sale=sale)
    client = ledger_connection()
    keys = LedgerKeys(sale.pk)
    build = secrets.token_hex(8)
    side = [keys.side(name, build) for name in ("buyers", "pending", "ended")]
    with ledger_errors():
        _write_side_keys(side, {SENTINEL: str(sale.epoch), **contents.buyers}, contents)
        answer = _LOAD.run(
            client,
            keys=[keys.sale, keys.buyers, keys.pending, keys.ended, keys.kick, *side],
            args=[sale.epoch, *Figures.of(sale).as_arguments(), ENDED_RETENTION_MS],
        )
    if answer == "SIDE_KEYS_LOST":
        raise LedgerUnavailable("the ledger took too long to build")
    logger.info(
        "loaded sale %s, epoch %s: %s buyers, %s pending",
        sale.pk, sale.epoch, len(contents.buyers), len(contents.pending),
    )  # fmt: skip


def _raise_epoch(*, sale: SeckillVoucher) -> None:
    """Raise the epoch above the row's and above one that was installed but never committed."""
    with ledger_errors():
        client, key = ledger_connection(), LedgerKeys(sale.pk).sale
        installed = client.hget(key, "epoch") if client.type(key) == "hash" else None
    sale.epoch = max(sale.epoch, int(installed or 0)) + 1
    sale.fence = max(sale.fence, sale.epoch << FENCE_BITS)
    sale.save(update_fields=["epoch", "fence"])


def _collect(*, sale: SeckillVoucher) -> _Contents:
    contents = _survivors(sale_id=sale.pk)
    orders = sale.orders.values_list("id", "user_id", "unit", "live", "status", "reason")
    live_ids = set()
    for order_id, user_id, unit, live, status, reason in orders.iterator(chunk_size=_CHUNK):
        if live:
            live_ids.add(str(order_id))
            contents.buyers[f"{user_id}:{unit}"] = str(order_id)
        else:
            contents.ended[str(order_id)] = f"{user_id}:{reason or status}"
    contents.pending = {
        member: accepted_at_ms
        for member, accepted_at_ms in contents.pending.items()
        if member.split(":")[0] not in live_ids
    }
    now_ms = _now_ms()
    for buyer, held_id in contents.buyers.items():
        if held_id not in live_ids:
            contents.pending.setdefault(f"{held_id}:{buyer}", now_ms)
    return contents


def _now_ms() -> int:
    with ledger_errors():
        seconds, micros = ledger_connection().time()
    return int(seconds) * 1000 + int(micros) // 1000


def _survivors(*, sale_id: int) -> _Contents:
    """Return what is left of a broken ledger; a key of a wrong type holds nothing."""
    client, keys = ledger_connection(), LedgerKeys(sale_id)
    contents = _Contents()
    with ledger_errors():
        if client.type(keys.buyers) == "hash":
            contents.buyers = dict(client.hgetall(keys.buyers))
        if client.type(keys.pending) == "zset":
            contents.pending = dict(client.zrange(keys.pending, 0, -1, withscores=True))
    contents.buyers.pop(SENTINEL, None)
    for member in contents.pending:
        order_id, _, buyer = member.partition(":")
        contents.buyers.setdefault(buyer, order_id)
    return contents


def _write_side_keys(side: Sequence[str], buyers: dict[str, str], contents: _Contents) -> None:
    buyers_key, pending_key, ended_key = side
    with ledger_connection().pipeline(transaction=False) as pipe:
        for part in _chunks(buyers):
            pipe.hset(buyers_key, mapping=part)
        for part in _chunks(contents.pending):
            pipe.zadd(pending_key, part)
        for part in _chunks(contents.ended):
            pipe.hset(ended_key, mapping=part)
        for key in side:
            pipe.expire(key, SIDE_KEY_SECONDS)
        pipe.execute()


def _chunks(mapping: dict[str, Any]) -> Iterator[dict[str, Any]]:
    items = iter(mapping.items())
    while part := dict(islice(items, _CHUNK)):
        yield part
