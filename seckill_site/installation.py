"""Whose ledgers a Redis holds: two installations on one would overwrite each other's sales.

Each installation has a random identity in its database. The first that uses a Redis writes its own
there; another is refused until ``manage.py adopt_ledger`` hands the ledgers over, for example after
a database was set up anew.
"""

import secrets

from django.apps import apps
from redis.exceptions import RedisError

from seckill_site.redis.ledger_connection import ledger_connection

_KEY = "seckill:installation"


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
