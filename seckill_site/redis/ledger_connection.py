"""The connection to the Redis that holds ledger and locks."""

from typing import Any

from django_redis import get_redis_connection

BACKING_OFF = "seckill:backing_off"
"""The key that says why workers pause a sale, while the database takes no orders of it."""


def ledger_connection() -> Any:
    """Return the raw client of ``REDIS_URL``, with decoded replies.

    A ``redis.Redis``; redis-py's own types cannot express decoded replies, hence Any.
    """
    return get_redis_connection("ledger")
