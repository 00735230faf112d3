"""Counts that read many rows, kept in the cache for all viewers; slow ones are kept for longer."""

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

from django.core.cache import cache

from seckill_site.clocks.machine import epoch_ms

CACHE_FACTOR = 20
"""Ratio of cache time to counting time: counting takes at most 5 % of one connection."""

CACHE_S = (1.0, 60.0)
"""The shortest and the longest cache time of the counts."""

STALE_S = 3600
COUNTING_S = 30
"""Seconds after which another process may count, because the first one has died or failed."""


def kept_counts(
    key: str, count: Callable[[], dict[str, Any]], *, now: dt.datetime, may_count: bool = True
) -> dict[str, Any] | None:
    """Return the cached counts, if any; recount if they are stale and nobody else is counting.

    If counting fails, there are no counts for a while.
    """
    kept: dict[str, Any] | None = cache.get(key)
    is_fresh = kept is not None and epoch_ms(now) < kept["until_ms"]
    if is_fresh or not may_count or not cache.add(f"{key}:counting", 1, timeout=COUNTING_S):
        return kept["counts"] if kept else None
    started = time.monotonic()
    counts = count()
    kept_s = min(max(CACHE_S[0], CACHE_FACTOR * (time.monotonic() - started)), CACHE_S[1])
    until_ms = epoch_ms(now) + int(kept_s * 1000)
    cache.set(key, {"counts": counts, "until_ms": until_ms}, timeout=STALE_S)
    cache.delete(f"{key}:counting")
    return counts
