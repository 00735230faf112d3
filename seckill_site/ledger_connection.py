"""The connection to the Redis that holds ledger and locks."""

from typing import Any

from django_redis import get_redis_connection


def ledger_connection() -> Any:
    """Return the raw client of ``REDIS_URL``, with decoded replies.

    A ``redis.Redis``; redis-py's own types cannot express decoded replies, hence Any.
    """
    return get_redis_connection("ledger")
