"""Loading a sale: building its ledger in Redis from the database, when new, lost or outdated.

The row is held ``FOR UPDATE`` from reading the orders until the ledger is installed: an order
committed in between would sell its unit twice.

Note [Epoch and state]
~~~~~~~~~~~~~~~~~~~~~~
A sale's epoch counts the builds of its ledger. It is in the row, where it is raised and committed
before a build starts, so none is used twice; and in the ``state`` of the ledger that the build
installs.

The state is a field of ``buyers``, and a ledger counts as loaded only if it is there. In a key of
its own it would outlive lost buyers, which would look like an unsold sale (Note [Derived stock] in
``sale_state.py``). While a ledger is not loaded every script says so, and buyers are told
*unavailable* until it is built. The ``sale`` hash remains: it names the sale whose ledger it was.

A fencing token is the epoch above ``FENCE_BITS`` bits of counter. So a raised epoch raises the
row's fence: a worker that started on the lost ledger is refused when it writes.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, transaction

from locks import RedisLock, cap_leases
from locks.lua_script import Argument, ScriptCall
from seckill_site.broker.pace import note_life
from seckill_site.clocks.ledger import read_ledger_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.failpoints import failpoint
from seckill_site.installation import check_owner, mark
from seckill_site.newer_format import newer_ledger
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.chain import CHAIN_FIELDS, Mark, add_mark
from vouchers.inventory.draw_entries import restore_entries
from vouchers.inventory.holdings import Holding, put_junk_aside
from vouchers.inventory.keys import (
    BUILT,
    STATE,
    LedgerKeys,
    LedgerUnavailable,
    NewerFormat,
    NotLoaded,
    ledger_errors,
    ledger_script,
    log_wrong_types,
    run_script,
    send_many,
)
from vouchers.inventory.purchases import purchase_of
from vouchers.inventory.reservations import ENDED_RETENTION_MS
from vouchers.inventory.sale_state import (
    LedgerRemoved,
    LedgerTerms,
    Snapshot,
    check_not_removed,
    snapshot,
    snapshots,
    stored_snapshot,
    write_terms,
)
from vouchers.inventory.stored_line import restore_places, stored_line
from vouchers.inventory.waiting_list import stored_place
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

T = TypeVar("T")

FENCE_BITS = 32
"""The bits of counter in a fencing token, below the epoch."""

SIDE_KEY_TTL_S = 120
"""The side keys of a build that dies expire after this."""

LOADING_MS = 3_000
"""The longest that other processes answer *unavailable* while one loads a sale for a buyer."""

LOAD_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""The longest pause before each attempt to load, as another load may overtake this one. The pauses
are random, so that concurrent loads do not stay in step."""

FOREIGN_KEPT_MS = 7 * 24 * 60 * 60 * 1000
"""For how long the ledger of another sale with the same id is kept."""

_LOAD = ledger_script("load")
_UNLOAD = ledger_script("unload")
_PUT_FOREIGN_ASIDE = ledger_script("put_foreign_aside")
_DROP_WRONG_TYPES = ledger_script("drop_wrong_types")
_CHECK_FORMAT = ledger_script("check_format")
_CHUNK_SIZE = 5_000


class LoadCode(StrEnum):
    """The codes of ``load.lua``."""

    LOADED = "LOADED"
    ALREADY_LOADED = "ALREADY_LOADED"
    SIDE_KEYS_LOST = "SIDE_KEYS_LOST"


@dataclass
class _Contents:
    """The contents of a ledger to build, key by key; pending and waiting with their times."""

    buyers: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    barred: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)


def check_format(*, sale_id: int) -> None:
    """Refuse to touch the ledger of a newer release.

    :raises NewerFormat: it is one.
    """
    key = LedgerKeys(sale_id).sale
    if found := run_script(_CHECK_FORMAT, [key], read=str):
        newer_ledger.learn((key, found))
        raise NewerFormat(f"the ledger of sale {sale_id} has format {found} of a newer release")


def load_sale(*, sale_id: int, bring_back: bool = False) -> None:
    """Make sure that the ledger is loaded and has the row's terms: build it, or copy the terms.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerRemoved: it was removed, and the caller does not ``bring_back`` it.
    :raises LedgerUnavailable: Redis did not respond, or holds another installation's ledgers.
    """
    with ledger_errors():
        check_owner()
    check_format(sale_id=sale_id)
    if bring_back:
        with transaction.atomic(durable=True):
            note_back(lock_seckill_voucher(sale_id=sale_id))
    check_not_removed(sale_id=sale_id)
    note_life()
    for longest_s in LOAD_PAUSES_S:
        time.sleep(random.uniform(0, longest_s))
        if _copy_terms(sale_id=sale_id):
            return
        # Committed before the build, whether or not that succeeds: Note [Epoch and state].
        epoch = _raise_epoch(sale_id=sale_id)
        failpoint("load.epoch_raised")
        if _build_ledger(sale_id=sale_id, epoch=epoch):
            return
    raise LedgerUnavailable(f"other processes are loading sale {sale_id}")


def load_unless_removed(*, sale_id: int) -> None:
    """Load a sale for a change that its row alone can take if the ledger was removed."""
    with suppress(LedgerRemoved):
        load_sale(sale_id=sale_id)


def note_back(sale: SeckillVoucher) -> None:
    """Note in a locked row that its ledger comes back, if it was removed; the caller loads it."""
    if sale.ledger_removed_at:
        _close(sale_id=sale.pk)  # an old Redis may have another one
        sale.ledger_removed_at, sale.ledger_back_at = None, sale.locked_at
        sale.save(update_fields=["ledger_removed_at", "ledger_back_at"])


def rebuild_sale(*, sale_id: int, epoch: str = "") -> None:
    """Close a sale whose ledger is wrong, and rebuild it from what is left of it.

    Buyers are told *unavailable* until it is loaded again. With the ``epoch`` of the wrong ledger,
    one that another process has rebuilt meanwhile stays open.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not respond; the sale may be closed until the next load.
    """
    with ledger_errors():
        check_owner()
        # First, because only the terms may still say that the entries are those of another sale.
        identity = SeckillVoucher.objects.get(pk=sale_id).identity
        put_foreign_aside(sale_id=sale_id, identity=identity)
        if not _close(sale_id=sale_id, epoch=epoch):
            return
    failpoint("load.closed")
    load_sale(sale_id=sale_id)


def ledgers_there() -> list[int]:
    """Return the sales that have a ledger in Redis, whether or not they have a row.

    A closed one without buyers has its ``sale`` alone, beside what ended and who entered.
    """
    with ledger_errors():
        keys = ledger_connection().scan_iter("seckill:{*}:*", count=_CHUNK_SIZE)
        named = [it.partition("{")[2].partition("}:") for it in keys]
    return sorted({int(pk) for pk, _, name in named if name in ("sale", "buyers")})


def close_restored() -> bool:
    """Close all ledgers if the database is marked, and return whether it is.

    Note [Restored databases] in ``seckill_site/installation.py``.
    """
    if not mark().exists():
        return False
    for sale_id in ledgers_there():
        _close(sale_id=sale_id)
    return True


def drop_wrong_types(*, sale_ids: Iterable[int]) -> None:
    """Delete the keys of these sales that have a wrong type, and say so in the log.

    Whoever needs one makes it again. A ledger that lacks what only a build restores is closed until
    the next load.

    :raises LedgerUnavailable: Redis did not respond, or holds another installation's ledgers.
    """
    with ledger_errors():
        check_owner()
    sale_ids = list(sale_ids)
    calls = []
    for sale_id in sale_ids:
        types = LedgerKeys(sale_id).types
        args: list[Argument] = [len(BUILT), *types.values()]
        calls.append(ScriptCall(_DROP_WRONG_TYPES, list(types), args, list[str]))
    for sale_id, dropped in zip(sale_ids, send_many(calls), strict=True):
        log_wrong_types(sale_id=sale_id, keys=dropped)


def load_sale_exclusively(*, sale_id: int) -> None:
    """Load a sale for the first request that needs it; only one process at a time does so.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: also if another process is loading it.
    """
    check_format(sale_id=sale_id)
    loading = LedgerKeys(sale_id).loading
    with ledger_errors():
        acquired = ledger_connection().set(loading, "1", nx=True, px=LOADING_MS)
        if not acquired:
            cap_leases(ledger_connection(), [loading], LOADING_MS)
    if not acquired:
        raise LedgerUnavailable(f"another process is loading sale {sale_id}")
    try:
        load_sale(sale_id=sale_id)
    finally:
        with ledger_errors():
            ledger_connection().delete(loading)


def once_loaded(
    call: Callable[[], T], *, sale_id: int, load: Callable[..., None] = load_sale_exclusively
) -> T:
    """Return what a call of a sale's ledger returns; load the sale if it is not there yet."""
    try:
        return call()
    except NotLoaded:
        load(sale_id=sale_id)
        return call()


def load_after_commit(*, sale_ids: Iterable[int]) -> None:
    """Load sales that were just saved; stop at the first failure, as each costs a timeout.

    A sale that is not loaded now is loaded by its first request or by reconcile.
    """
    for sale_id in sale_ids:
        try:
            load_unless_removed(sale_id=sale_id)
        except (LedgerUnavailable, DatabaseError) as error:
            logger.warning("sale %s is saved but not loaded: %s", sale_id, error)
            return


def snapshot_or_load(*, sale_id: int) -> Snapshot:
    """Return the sale as the ledger has it, and load it first if needed; a removed one by its row.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: also if another process is loading it.
    """
    try:
        return once_loaded(partial(snapshot, sale_id=sale_id), sale_id=sale_id)
    except LedgerRemoved as removed:
        return removed.snapshot


def ensure_safe_fence(*, sale_id: int, stored: int) -> int:
    """Return a fence at or above ``stored``, the row's, whose epoch no later build can install.

    A process may have raised the epoch without building yet, while an older ledger is loaded. A
    worker with a token of that epoch could write after the build, which knows nothing of its batch.

    :raises NotLoaded: no ledger is loaded.
    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    if stored >> FENCE_BITS <= snapshot(sale_id=sale_id).epoch:
        return stored
    return _raise_epoch(sale_id=sale_id) << FENCE_BITS


def sale_lock(*, sale_id: int, epoch: int) -> RedisLock:
    """Return the lock of who writes a sale's orders; its fencing token is one of this epoch."""
    keys = LedgerKeys(sale_id)
    return RedisLock(
        ledger_connection(),
        keys.sale_lock,
        lease_ms=settings.SECKILL_LEASE_MS,
        fence_key=keys.fence,
        fence_floor=epoch << FENCE_BITS,
    )


def current_run_id() -> str:
    """Return the id of this run of the Redis server; empty if it is unknown.

    :raises LedgerUnavailable: also if the server has become a replica: Note [Another primary].
    """
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        server, replication = pipe.info("server").info("replication").execute()
    if replication.get("role", "master") != "master":
        ledger_connection().connection_pool.distrust()
        raise LedgerUnavailable("the ledger's Redis has become a replica")
    return str(server.get("run_id", ""))


def _copy_terms(*, sale_id: int) -> bool:
    """Copy the row's terms into a loaded ledger; False if none is loaded."""
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if sale.ledger_removed_at:
            return False
        try:
            write_terms(sale_id=sale_id, terms=LedgerTerms.from_sale(sale))
        except NotLoaded:
            return False
        return True


def _raise_epoch(*, sale_id: int) -> int:
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        if sale.ledger_removed_at:
            raise LedgerRemoved(stored_snapshot(sale))
        add_mark(sale, Mark.EPOCH, raise_epoch(sale))
        sale.save(update_fields=["epoch", "fence", *CHAIN_FIELDS])
    return sale.epoch


def raise_epoch(sale: SeckillVoucher) -> int:
    """Raise the epoch and the fence of a locked row, which the caller saves; return the epoch."""
    sale.epoch += 1
    sale.fence = max(sale.fence, sale.epoch << FENCE_BITS)
    return sale.epoch


def _build_ledger(*, sale_id: int, epoch: int) -> bool:
    """Build the ledger from live orders and what survived of the old one, and install it.

    A buyer without a live order goes to pending, never to release: fulfilment decides. Return False
    if another process has raised the epoch since, because this build may be for an earlier loss.
    """
    with transaction.atomic(durable=True):
        sale = lock_seckill_voucher(sale_id=sale_id)
        put_foreign_aside(sale_id=sale_id, identity=sale.identity)
        if snapshots(sale_ids=[sale_id])[sale_id] is not None:
            # Another process has built it and buyers are reserving. What is read now would be out
            # of date when installed, if that ledger were lost in between.
            return True
        if sale.epoch != epoch:
            # A worker that started after that earlier loss would not be refused.
            return False
        # An order does not notice that a key it never reads has a wrong type. If it were accepted
        # between the reading below and the installation, it would be lost.
        _close(sale_id=sale_id)
        contents = _collect_contents(sale=sale)
        restore_places(sale)
        contents.ended |= restore_entries(sale, build=f"{sale.epoch}:{sale.identity}")
        code = _install(sale, contents)
        failpoint("load.installed")
    if code is LoadCode.SIDE_KEYS_LOST:
        raise LedgerUnavailable(f"the ledger of sale {sale_id} took too long to build")
    logger.info(
        "%s sale %s, epoch %s: %s buyers, %s pending",
        code.value.lower().replace("_", " "), sale_id, sale.epoch,
        len(contents.buyers), len(contents.pending),
    )  # fmt: skip
    return True


def _close(*, sale_id: int, epoch: str = "") -> bool:
    """Close a broken ledger to buyers; return False if a ledger of another epoch is loaded."""
    keys = LedgerKeys(sale_id)
    return run_script(_UNLOAD, [keys.buyers, keys.sale], epoch, read=bool)


def put_foreign_aside(*, sale_id: int, identity: int) -> None:
    """Move the ledger of another sale with this id out of the way. Safe to repeat."""
    foreign_build = run_script(
        _PUT_FOREIGN_ASIDE, LedgerKeys(sale_id).movable, identity, FOREIGN_KEPT_MS, read=str
    )
    if foreign_build:
        logger.error(
            "sale %s: put aside the ledger of another sale with this id, %s", sale_id, foreign_build
        )


def _collect_contents(*, sale: SeckillVoucher) -> _Contents:
    contents = _read_survivors(sale_id=sale.pk)
    orders = sale.orders.values_list("id", "user_id", "unit", "live", "status", "reason")
    live_ids = set()
    for order_id, user_id, unit, live, status, reason in orders.iterator(chunk_size=_CHUNK_SIZE):
        if live:
            live_ids.add(str(order_id))
            contents.buyers[f"{user_id}:{unit}"] = str(order_id)
        else:
            contents.ended[str(order_id)] = f"{user_id}:{reason or status}"
            # Refused orders have a reason: Note [Ended orders] in orders/models/orders.py.
            if not reason:
                contents.barred[str(user_id)] = str(order_id)
    contents.pending = {
        member: accepted_at_ms
        for member, accepted_at_ms in contents.pending.items()
        if member.partition(":")[0] not in live_ids
    }
    with ledger_errors():
        now_ms = read_ledger_ms()
    # The units of a purchase have one time, so that they stay side by side.
    times = {_purchase_of_member(it): at_ms for it, at_ms in contents.pending.items()}
    for buyer, held_id in contents.buyers.items():
        if held_id not in live_ids:
            member = f"{held_id}:{buyer}"
            at_ms = times.get(_purchase_of_member(member), now_ms)
            contents.pending.setdefault(member, at_ms)
    pending_ids = {member.partition(":")[0] for member in contents.pending}
    served_ids = {*contents.buyers.values(), *contents.ended, *pending_ids}
    contents.waiting = _read_waiting(sale, served_ids)
    return contents


def _purchase_of_member(member: str) -> int:
    return purchase_of(int(member.partition(":")[0]))


def _read_waiting(sale: SeckillVoucher, served_ids: set[str]) -> dict[str, float]:
    """Return the waiting list, without what has been given to it."""
    columns = ("order_id", "user_id", "joined_at", "quantity", "all_or_none")
    entries = sale.waiting_entries.filter(live=True).values_list(*columns)
    waiting = {}
    for row in entries.iterator(chunk_size=_CHUNK_SIZE):
        order_id, user_id, joined_at, quantity, all_or_none = row
        place = stored_place(
            order_id,
            epoch_ms(joined_at),
            quantity=quantity,
            all_or_none=all_or_none,
            served=served_ids,
        )
        if place:
            waiting[f"{place[0]}:{user_id}"] = place[1]
    return waiting


def _read_survivors(*, sale_id: int) -> _Contents:
    """Return what is left of a broken ledger; a key of a wrong type counts as missing."""
    client, keys = ledger_connection(), LedgerKeys(sale_id)
    contents = _Contents()
    with ledger_errors():
        if client.type(keys.buyers) == "hash":
            contents.buyers = dict(client.hgetall(keys.buyers))
        if client.type(keys.pending) == "zset":
            contents.pending = dict(client.zrange(keys.pending, 0, -1, withscores=True))
    for name in (STATE, "epoch"):  # the latter is of an earlier release
        contents.buyers.pop(name, None)
    _drop_junk(sale_id, contents)
    for member in contents.pending:
        order_id, _, buyer = member.partition(":")
        contents.buyers.setdefault(buyer, order_id)
    return contents


def _drop_junk(sale_id: int, contents: _Contents) -> None:
    """Put aside what is no entry: buyers with an order are found in the database."""
    buyers, pending = contents.buyers, contents.pending
    junk = [name for name, order_id in buyers.items() if not Holding.parse(f"{order_id}:{name}")]
    junk += [it for it, score in pending.items() if not (Holding.parse(it) and isfinite(score))]
    put_junk_aside(sale_id=sale_id, names=junk)
    for name in junk:
        buyers.pop(name, None)
        pending.pop(name, None)


def _install(sale: SeckillVoucher, contents: _Contents) -> LoadCode:
    """Write the contents to side keys of this build, and let one script make them the ledger."""
    keys, build = LedgerKeys(sale.pk), secrets.token_hex(8)
    parts = {item.name: getattr(contents, item.name) for item in fields(contents)}
    side = {name: keys.side(name, build) for name in parts}
    with ledger_errors():
        for name, part in parts.items():
            _write_side_key(side[name], part)
    failpoint("load.prepared")
    terms = LedgerTerms.from_sale(sale)
    return run_script(
        _LOAD,
        [*keys.contents, keys.kick, keys.trying, keys.sale, keys.room, *side.values(), keys.price],
        sale.epoch,
        *terms.script_args(),
        ENDED_RETENTION_MS,
        sale.batch,
        current_run_id(),
        *stored_line(sale),
        *map(len, parts.values()),
        *terms.last_words,
        read=LoadCode,
    )


def _write_side_key(key: str, part: dict[str, Any]) -> None:
    """Write one key of a build chunk by chunk: a hash of texts, or a sorted set by times."""
    items = iter(part.items())
    with ledger_connection().pipeline(transaction=False) as pipe:
        while chunk := dict(islice(items, _CHUNK_SIZE)):
            if isinstance(next(iter(chunk.values())), str):
                pipe.hset(key, mapping=chunk)
            else:
                pipe.zadd(key, chunk)
            # After each chunk, so that a build that dies half-way leaves nothing.
            pipe.expire(key, SIDE_KEY_TTL_S)
        pipe.execute()
