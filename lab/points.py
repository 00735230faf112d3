"""Named points of a step: where a race can stop whoever comes by. Elsewhere they do nothing.

A point stands before or after a statement that matters, and is named for what has just happened or
is about to. Who is stopped there, for how long and in which order is the business of whoever
listens; a crowd does not listen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str], None]

_here = threading.local()


def point(name: str) -> None:
    """Pass a point of this name; in a race, the thread may be held here."""
    listener: Listener | None = getattr(_here, "listener", None)
    if listener is not None:
        listener(name)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell this thread's points to a listener for a while."""
    before = getattr(_here, "listener", None)
    _here.listener = listener
    try:
        yield
    finally:
        _here.listener = before
