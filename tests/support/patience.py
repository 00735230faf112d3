"""How long tests wait, on machines that sometimes stand still for a second or more."""

from __future__ import annotations

import time
from collections.abc import Callable

MOMENT_S = 6.0
"""More than any timeout of the site, less than the minutes that libraries wait by default."""

GENEROUS_S = 60.0
"""Far more than anything should take; a test that waits this long has failed."""


def wait_for(
    condition: Callable[[], bool], *, what: str = "the condition", seconds: float = GENEROUS_S
) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds:g} s"
        time.sleep(0.01)
