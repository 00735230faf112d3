"""How a lock waits for its turn."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

PAUSE_MS = (5, 50)
"""The shortest and the longest pause: at random, so that those who wait do not ask in step."""


def attempts(*, wait_ms: int) -> Iterator[None]:
    """Yield once for each attempt: the first at once, the last when ``wait_ms`` are over."""
    until = time.monotonic() + wait_ms / 1000
    yield
    while (left_s := until - time.monotonic()) > 0:
        time.sleep(min(left_s, random.uniform(*PAUSE_MS) / 1000))
        yield
