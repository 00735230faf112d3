"""How tests wait, on machines that sometimes stand still for a second or more."""

from __future__ import annotations

import time
from collections.abc import Callable

MOMENT_S = 6.0
"""More than any timeout of the site, less than the minutes that libraries wait by default."""

GENEROUS_S = 120.0
"""Far more than anything should take; a test that waits this long has failed."""


def eventually(condition: Callable[[], object], *, within_s: float = GENEROUS_S) -> bool:
    """Wait until a condition holds and return whether it did in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return bool(condition())
        time.sleep(0.01)
    return True


def wait_for(
    condition: Callable[[], object], *, what: str = "the condition", seconds: float = GENEROUS_S
) -> None:
    """Wait until a condition holds; fail the test if it does not in time."""
    assert eventually(condition, within_s=seconds), f"{what} did not come about in {seconds:g} s"
