"""Wait for a condition with a deadline."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, within_s: float, every_s: float = 0.005) -> bool:
    """Check a condition at intervals until it holds; return False if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
