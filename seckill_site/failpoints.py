"""Named points at which a test stops the product: ``FAILPOINT=name[:nth][=action]``.

The action is taken once, when this process reaches the point for the nth time (first by default).
``exit``, the default, ends the process as a power cut would; ``raise`` raises
:class:`FailpointReached`; ``stop`` stops the process until it gets SIGCONT.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SPEC = re.compile(r"(?P<name>[a-z_.]+)(:(?P<nth>[1-9][0-9]*))?(=(?P<action>exit|raise|stop))?")


class FailpointReached(Exception):
    """A test asked for this failure."""


def failpoint(name: str) -> None:
    """Fail here, if a test has asked for this point."""
    if _Points.listener is not None:
        _Points.listener(name)


@contextmanager
def armed(spec: str) -> Iterator[None]:
    """Arm a failpoint in this process during the ``with`` block."""
    before, _Points.listener = _Points.listener, _parse(spec)
    try:
        yield
    finally:
        _Points.listener = before


def tell(listener: Callable[[str], None]) -> None:
    """Report every point that this process reaches to a listener, and fail at none."""
    _Points.listener = listener


def _parse(spec: str) -> Callable[[str], None] | None:
    """Read a specification; an empty one arms nothing, a malformed one raises ValueError."""
    if not spec:
        return None
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ValueError(f"FAILPOINT is name[:nth][=exit|raise|stop], not {spec!r}")
    passes_left = int(match["nth"] or 1)

    def reach(name: str) -> None:
        nonlocal passes_left
        if name != match["name"]:
            return
        passes_left -= 1
        if passes_left != 0:
            return
        if match["action"] == "raise":
            raise FailpointReached(name)
        # A signal to the process might reach this thread only after it has run on.
        signum = signal.SIGSTOP if match["action"] == "stop" else signal.SIGKILL
        signal.pthread_kill(threading.get_ident(), signum)

    return reach


class _Points:
    listener: Callable[[str], None] | None = _parse(os.environ.get("FAILPOINT", ""))
