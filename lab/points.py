"""Named points of a step, before or after each statement that matters.

In a race, a listener may stop the thread there. Without one, a point does nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
"""The listener of the current thread."""


def point(name: str) -> None:
    """Pass a point with this name."""
    listener = _listener.get()
    if listener is not None:
        listener(name)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report this thread's points to a listener inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
