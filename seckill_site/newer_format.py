"""Whether this is an older release: one that has met a ledger whose format it does not know."""

from contextlib import suppress

from redis.exceptions import RedisError

from seckill_site.process_memory import Latest
from seckill_site.redis.ledger_connection import ledger_connection

newer_ledger = Latest[tuple[str, str] | None](None)
"""The ``sale`` hash that had a newer format when this process last met one, and that format."""


def is_older_release() -> bool:
    """Return whether a newer ledger that this process has met still stands."""
    if newer_ledger.value:
        key, found = newer_ledger.value
        with suppress(RedisError):
            if ledger_connection().hget(key, "format") != found:
                newer_ledger.learn(None)
    return newer_ledger.value is not None
