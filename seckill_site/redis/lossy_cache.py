"""The cache, which may be missing."""

from typing import Any

from django_redis.cache import RedisCache

_ALLAUTH_LOCK = ":lock"
"""The end of the keys with which allauth locks its counts of attempts."""


class LossyCache(RedisCache):  # type: ignore[misc]
    """django-redis's cache, with a lock for allauth that a missing cache does not hold for ever."""

    def add(self, key: str, *args: Any, **kwargs: Any) -> bool:
        """Store a value unless there is one; return whether this was done.

        While the cache is away nothing is stored. allauth would wait for its lock and then refuse
        everybody, so its locks are granted.
        """
        added = super().add(key, *args, **kwargs)
        return bool(added) or (added is None and key.endswith(_ALLAUTH_LOCK))
