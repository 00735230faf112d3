"""Facts from the database in the cache: filled under a lease, dropped when they change.

Whoever fills a fact takes a lease before reading the database. Dropping a fact drops its lease too,
so what was read before the change never comes back.

A change writes a :class:`StaleFact` row with itself. The row stays until the cache has dropped the
fact: at once after the commit, else by the task ``drop_stale_facts``, again and again.
"""

import datetime as dt
import logging
import secrets
from functools import partial
from pathlib import Path
from typing import Any

from django.core.cache import cache
from django.db import DatabaseError, connection, transaction
from django_redis import get_redis_connection
from redis.exceptions import RedisError

from locks.lua_script import LuaScript
from seckill_site.clocks.database import database_now
from seckill_site.kept_settings import kept
from seckill_site.models import StaleFact

LEASE_MS = 10_000
"""A reader of the database that takes longer than this fills nothing."""

LONGEST_LIFE_S = 10 * 60
"""The cache keeps no fact longer, so that a change by SQL is noticed at last.

A whole crowd that refills within the minute before a sale costs what one costs that just signed in.
"""

LONGEST_SAVE_S = 10
"""A change outside of a transaction is over after this time at the latest."""

_DROPPED_AT_ONCE = 1_000
_FILL = LuaScript(Path(__file__).parent / "lua" / "fill_fact.lua")

logger = logging.getLogger(__name__)


def cache_connection() -> Any:
    """Return the raw client of ``CACHE_URL``."""
    return get_redis_connection("default")


def stored_key(name: str) -> str:
    """Return the key in Redis for a key of Django's cache."""
    return _prefix() + name


_prefix = kept(lambda: str(cache.make_key("")))


def take_lease(name: str) -> str:
    """Return a lease to fill this fact, to be taken before the database is read."""
    lease = secrets.token_hex(8)
    try:
        cache_connection().set(_lease_key(name), lease, px=LEASE_MS)
    except RedisError as error:
        logger.warning("the cache gives no lease: %s", error)
    return lease


def fill_fact(name: str, text: str, *, lease: str, life_s: int) -> bool:
    """Let the cache keep a fact; False if the lease is over or the fact was dropped since."""
    keys = [stored_key(name), _lease_key(name)]
    life_ms = 1000 * min(life_s, LONGEST_LIFE_S)
    try:
        return bool(_FILL.run(cache_connection(), keys=keys, args=[lease, text, life_ms]))
    except RedisError as error:
        logger.warning("the cache takes no fact: %s", error)
        return False


def drop_now(*names: str) -> bool:
    """Drop facts and the leases to fill them; False if the cache did not respond."""
    keys = [key for name in names for key in (stored_key(name), _lease_key(name))]
    try:
        cache_connection().delete(*keys)
    except RedisError as error:
        logger.warning("the cache drops no fact: %s", error)
        return False
    return True


def record_stale_fact(name: str) -> int:
    """Record, with the change itself, that the cache has to drop a fact; return the record's id.

    Outside of a transaction it is recorded before the change: it is repeated once that is over.
    """
    wait_s = 0 if connection.in_atomic_block else LONGEST_SAVE_S
    due_at = database_now() + dt.timedelta(seconds=wait_s)
    return StaleFact.objects.create(name=name, due_at=due_at).pk


def drop_after_commit(name: str, record_id: int) -> None:
    """Have the fact dropped as soon as the change is committed."""
    transaction.on_commit(partial(_drop, [(record_id, name)]))


def drop_stale_facts() -> int:
    """Drop the facts that changed while the cache did not respond; return how many."""
    now = database_now()
    rows = StaleFact.objects.order_by("due_at").values_list("pk", "name", "due_at")
    records = list(rows[:_DROPPED_AT_ONCE])
    if early := [name for _, name, due_at in records if due_at > now]:
        drop_now(*early)  # the change may be over, or not: these are dropped again
    due = [(record_id, name) for record_id, name, due_at in records if due_at <= now]
    return _drop(due) if due else 0


def _drop(records: list[tuple[int, str]]) -> int:
    ids, names = zip(*records, strict=True)
    rows = StaleFact.objects.filter(pk__in=ids)
    dropped = drop_now(*names)
    try:
        if dropped:
            rows.delete()
        else:
            rows.update(due_at=database_now())
    except DatabaseError as error:  # the rows stay: dropping again does no harm
        logger.warning("dropped facts will be dropped again: %s", error)
    return len(records) if dropped else 0


def _lease_key(name: str) -> str:
    # Not behind the fact's key: a session cookie chooses how that one ends.
    return f"lease:{stored_key(name)}"
