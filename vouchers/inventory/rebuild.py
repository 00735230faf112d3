"""Loading: from the database into Redis, for a new sale and for one whose ledger was lost.

The row is held ``FOR UPDATE`` from reading the orders until the ledger stands, because an order
committed in between would sell its unit twice; and its epoch rises, so that a fulfilment which
started on the old ledger is refused by the fence.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import islice
from typing import Any

from django.db import DatabaseError, transaction

from seckill_site.clock import epoch_ms
from seckill_site.failpoints import failpoint
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import (
    SENTINEL,
    LedgerKeys,
    LedgerUnavailable,
    NotLoaded,
    ledger_errors,
    ledger_script,
)
from vouchers.inventory.reservations import ENDED_RETENTION_MS
from vouchers.inventory.sale_state import Figures, Snapshot, snapshot, snapshots, write_figures
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

FENCE_BITS = 32
"""A fencing token is the epoch above so many bits of counter."""

SIDE_KEY_SECONDS = 120
"""A build that dies leaves side keys; they go by themselves after this."""

LOADING_MS = 3_000
"""While one process loads a sale for its first buyer, the others answer *unavailable* so long."""

LOAD_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""How long at most a load waits before each new try because another one was begun: at random, so
that loads that overtake each other do not go on in step."""

_LOAD = ledger_script("load")
_CHUNK = 5_000


class _Outcome(StrEnum):
    """What ``load.lua`` answers."""

    LOADED = "LOADED"
    ALREADY_LOADED = "ALREADY_LOADED"
    SIDE_KEYS_LOST = "SIDE_KEYS_LOST"


@dataclass
class _Contents:
    """What a ledger is built from, key by key; pending and waiting with their times."""

    buyers: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    barred: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)


def load_sale(*, sale_id: int) -> None:
    """Make the ledger stand and its figures be the row's: build it, or just copy the figures.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not answer; the next call goes on.
    """
    for longest_s in LOAD_PAUSES_S:
        time.sleep(random.uniform(0, longest_s))
        if _copy_figures(sale_id=sale_id):
            return
        # Committed before anything is built: whatever becomes of the build, a fulfilment that
        # began on the lost ledger is refused from here on, and no epoch is given twice.
        epoch = _raise_epoch(sale_id=sale_id)
        failpoint("load.epoch_raised")
        if _build_ledger(sale_id=sale_id, epoch=epoch):
            return
    raise LedgerUnavailable("other processes are loading the sale")


def rebuild_sale(*, sale_id: int) -> None:
    """Close a sale whose ledger cannot be believed, and build it anew from what is left of it.

    Until it stands again buyers are told *unavailable*.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not answer; the sale may be closed until the next load.
    """
    with ledger_errors():
        # Without its figures the ledger does not count as loaded; buyers and promises survive.
        ledger_connection().delete(LedgerKeys(sale_id).sale)
    failpoint("load.closed")
    load_sale(sale_id=sale_id)


def fence_above_builds(*, sale_id: int, stored: int) -> int:
    """Return a fence at least as high as this one of the row, of an epoch that no build may use.

    A process may have raised the epoch and not have built yet, while an older ledger stands. A
    worker with a token of that epoch could go on after the build, which knows nothing of its batch.

    :raises NotLoaded: no ledger stands.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not answer.
    """
    if stored >> FENCE_BITS <= snapshot(sale_id=sale_id).epoch:
        return stored
    return _raise_epoch(sale_id=sale_id) << FENCE_BITS


def current_run_id() -> str:
    """Return what names this run of the Redis server; empty where it does not say."""
    with ledger_errors():
        return str(ledger_connection().info("server").get("run_id", ""))


def load_for_buyer(*, sale_id: int) -> None:
    """Load a sale for the first request that found none; one process at a time does the work.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: another process is at it, or Redis did not answer.
    """
    with ledger_errors():
        mine = ledger_connection().set(LedgerKeys(sale_id).loading, "1", nx=True, px=LOADING_MS)
    if not mine:
        raise LedgerUnavailable("the sale is being loaded")
    try:
        load_sale(sale_id=sale_id)
    finally:
        with ledger_errors():
            ledger_connection().delete(LedgerKeys(sale_id).loading)


def snapshot_or_load(*, sale_id: int) -> Snapshot:
    """Return the sale as the ledger has it, loading it first where it is not there.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: another process is loading it, or Redis did not answer.
    """
    try:
        return snapshot(sale_id=sale_id)
    except NotLoaded:
        load_for_buyer(sale_id=sale_id)
        return snapshot(sale_id=sale_id)


def load_after_commit(*, sale_id: int) -> None:
    """Load a sale just saved; what fails here is made up for by its first request or reconcile."""
    try:
        load_sale(sale_id=sale_id)
    except (LedgerUnavailable, DatabaseError) as error:
        logger.warning("sale %s is saved but not loaded: %s", sale_id, error)


def _copy_figures(*, sale_id: int) -> bool:
    """Copy the row's figures into a ledger that stands; False where there is none."""
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        try:
            write_figures(sale_id=sale_id, figures=Figures.of(sale))
        except NotLoaded:
            return False
        return True


def _raise_epoch(*, sale_id: int) -> int:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        sale.epoch += 1
        sale.fence = max(sale.fence, sale.epoch << FENCE_BITS)
        sale.save(update_fields=["epoch", "fence"])
    return sale.epoch


def _build_ledger(*, sale_id: int, epoch: int) -> bool:
    """Build the ledger from live orders and what survived of buyers and pending, and install it.

    A buyer without a live order goes (back) to pending, never to release: fulfilment decides. False
    where another process has raised the epoch meanwhile, and ours may stand for an older loss.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if snapshots(sale_ids=[sale_id])[sale_id] is not None:
            # Built by another meanwhile, and buyers are reserving: what is read now would be old
            # by the time it was installed, were that ledger lost in between.
            return True
        if sale.epoch != epoch:
            # Raised for an earlier loss: a fulfilment that began since then would not be refused.
            return False
        contents = _collect(sale=sale)
        outcome = _install(sale, contents)
        failpoint("load.installed")
    if outcome is _Outcome.SIDE_KEYS_LOST:
        raise LedgerUnavailable("the ledger took too long to build")
    logger.info(
        "%s sale %s, epoch %s: %s buyers, %s pending",
        outcome.value.lower().replace("_", " "), sale_id, sale.epoch,
        len(contents.buyers) - 1, len(contents.pending),
    )  # fmt: skip
    return True


def _install(sale: SeckillVoucher, contents: _Contents) -> _Outcome:
    """Write the contents to keys of this build alone, and let one script make them the ledger."""
    keys, build = LedgerKeys(sale.pk), secrets.token_hex(8)
    contents.buyers[SENTINEL] = str(sale.epoch)
    parts = {item.name: getattr(contents, item.name) for item in fields(contents)}
    side = {name: keys.side(name, build) for name in parts}
    with ledger_errors():
        for name, part in parts.items():
            _write_side_key(side[name], part)
        failpoint("load.prepared")
        answer = _LOAD.run(
            ledger_connection(),
            keys=[*keys.contents, keys.kick, keys.trying, *side.values()],
            args=[
                sale.epoch,
                *Figures.of(sale).as_arguments(),
                ENDED_RETENTION_MS,
                sale.batch,
                current_run_id(),
                *map(len, parts.values()),
            ],
        )
    return _Outcome(answer)


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
            if not reason:  # what was refused never was an order
                contents.barred[str(user_id)] = str(order_id)
    contents.pending = {
        member: accepted_at_ms
        for member, accepted_at_ms in contents.pending.items()
        if member.split(":")[0] not in live_ids
    }
    now_ms = _now_ms()
    for buyer, held_id in contents.buyers.items():
        if held_id not in live_ids:
            contents.pending.setdefault(f"{held_id}:{buyer}", now_ms)
    promised = {member.partition(":")[0] for member in contents.pending}
    contents.waiting = _waiting(sale, {*contents.buyers.values(), *contents.ended, *promised})
    return contents


def _waiting(sale: SeckillVoucher, known_ids: set[str]) -> dict[str, float]:
    """Return those who wait and whose order id has not come to anything yet."""
    entries = sale.waiting_entries.filter(live=True).values_list("order_id", "user_id", "joined_at")
    return {
        f"{order_id}:{user_id}": epoch_ms(joined_at)
        for order_id, user_id, joined_at in entries.iterator(chunk_size=_CHUNK)
        if str(order_id) not in known_ids
    }


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


def _write_side_key(key: str, part: dict[str, Any]) -> None:
    """Write one key of a build, a hash of texts or a set by times, chunk by chunk."""
    with ledger_connection().pipeline(transaction=False) as pipe:
        for chunk in _chunks(part):
            if isinstance(next(iter(chunk.values())), str):
                pipe.hset(key, mapping=chunk)
            else:
                pipe.zadd(key, chunk)
            # After each chunk, so that a build that dies half-way leaves nothing.
            pipe.expire(key, SIDE_KEY_SECONDS)
        pipe.execute()


def _chunks(mapping: dict[str, Any]) -> Iterator[dict[str, Any]]:
    items = iter(mapping.items())
    while part := dict(islice(items, _CHUNK)):
        yield part
