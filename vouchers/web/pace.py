"""How far apart the pages of a crowd ask ``me/`` before a start: the larger the crowd, the further.

Each process counts the requests for ``me/`` that it gets. Pages that all loaded in the last minute
may all ask again in one moment, when the start is near.
"""

from math import exp
from time import monotonic

from seckill_site.process_memory import Latest

REMEMBERED_S = 60.0
"""The time in which a request of the past loses most of its weight."""

COMFORTABLE_PER_S = 300
"""How many requests a process answers each second beside everything else."""

LONGEST_MS = 30_000
_STEP_MS = 500

_crowd = Latest((0.0, 0.0))
"""How many requests there were, faded, and when they were counted last."""


def count_me_request() -> None:
    """Count a request for ``me/``."""
    now = monotonic()
    _crowd.value = _faded(now) + 1, now


def me_pace_ms() -> int:
    """Return the time in milliseconds over which pages spread their next request for ``me/``."""
    needed_ms = _faded(monotonic()) / COMFORTABLE_PER_S * 1000
    return min(LONGEST_MS, int(needed_ms) // _STEP_MS * _STEP_MS)


def _faded(now: float) -> float:
    # Threads of WSGI may lose a count to each other: it is an estimate.
    crowd, counted_at = _crowd.value
    return crowd * exp((counted_at - now) / REMEMBERED_S)
