"""Whose ledgers a Redis holds: two installations on one would overwrite each other's sales.

Each installation has a random identity in its database. The first that uses a Redis writes its own
there; another is refused until ``manage.py adopt_ledger`` hands the ledgers over, for example after
a database was set up anew.

Note [Restored databases]
~~~~~~~~~~~~~~~~~~~~~~~~~
A restored database lacks the last orders. Written anew, they would be unpaid, although they may be
paid. So ``deploy/restore`` marks the database. Until ``after_restore --repair`` nobody else locks a
sale's row: no order is written, ends or frees its unit, and no ledger is built. Workers and beat
close all ledgers first, so that none accepts.
"""

import secrets
from contextvars import ContextVar
from typing import Any

from django.apps import apps
from django.db import OperationalError
from django.db.models import QuerySet
from redis.exceptions import RedisError

from seckill_site.redis.ledger_connection import ledger_connection

_KEY = "seckill:installation"


REPAIRING = ContextVar("REPAIRING", default=False)
"""True for the repair, which alone goes on in a marked database."""


class RestoredDatabase(OperationalError):
    """The database was restored, and manage.py after_restore has not repaired it yet."""


class ForeignLedger(RedisError):
    """The Redis of ``REDIS_URL`` holds the ledgers of another installation."""

    def __init__(self, owner: str) -> None:
        super().__init__(
            f"the Redis of REDIS_URL holds the ledgers of another installation, {owner}: give this "
            "one a Redis database of its own, or run manage.py adopt_ledger after a restore"
        )
        self.owner = owner


def own_identity() -> str:
    """Return the identity of this installation, written on first use."""
    rows = apps.get_model("seckill_site", "Installation").objects  # checks are imported before it
    row, _ = rows.get_or_create(pk=1, defaults={"identity": secrets.token_hex(8)})
    return str(row.identity)


def mark() -> QuerySet[Any]:
    """Return the row of this installation if the database is marked, else nothing."""
    rows = apps.get_model("seckill_site", "Installation").objects
    return rows.filter(restored_at__isnull=False, repaired_at=None)


def check_mark(is_marked: bool) -> None:
    """Refuse to go on in a marked database.

    :raises RestoredDatabase: it is marked, and this is not the repair.
    """
    if is_marked and not REPAIRING.get():
        raise RestoredDatabase("restored: run manage.py after_restore --repair")


def check_owner() -> None:
    """Make sure that the ledgers in Redis are ours; the first use makes them ours.

    :raises ForeignLedger: they are those of another installation.
    :raises redis.RedisError: Redis did not respond.
    """
    client, ours = ledger_connection(), own_identity()
    owner = client.get(_KEY)
    if owner is None and not client.set(_KEY, ours, nx=True):
        owner = client.get(_KEY)
    if owner not in (None, ours):
        raise ForeignLedger(owner)


def adopt_ledgers() -> str:
    """Make the ledgers in Redis ours, and return whose they were; empty if nobody's.

    :raises redis.RedisError: Redis did not respond.
    """
    before: str = ledger_connection().getset(_KEY, own_identity()) or ""
    return before
