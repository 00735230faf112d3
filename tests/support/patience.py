"""How tests wait, on machines that now and then stand still for a second or more."""

from __future__ import annotations

import time
from collections.abc import Callable

MOMENT_S = 6.0
"""More than any time-out of the site, less than the minutes that libraries wait of themselves."""

LONG_S = 60.0
LOOK_AGAIN_S = 0.01


def eventually(condition: Callable[[], object], *, within_s: float = LONG_S) -> bool:
    """Wait until a condition holds and return whether it did in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return bool(condition())
        time.sleep(LOOK_AGAIN_S)
    return True


def wait_for(
    condition: Callable[[], object], *, what: str = "the condition", within_s: float = LONG_S
) -> None:
    """Wait until a condition holds; fail the test if it does not in time."""
    assert eventually(condition, within_s=within_s), f"{what} did not hold within {within_s:g} s"
