"""The cache, which may be missing."""

from __future__ import annotations

from typing import Any

from django_redis.cache import RedisCache


class LossyCache(RedisCache):  # type: ignore[misc]
    """django-redis's cache, for callers that lock with ``add()``.

    A cache that is away holds no lock, so it refuses none: otherwise nobody could sign in.
    """

    def add(self, *args: Any, **kwargs: Any) -> bool:
        """Store a value unless there is one; return whether there was none."""
        return super().add(*args, **kwargs) is not False
