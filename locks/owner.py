"""Who asks: names for this process and for one acquisition by one of its threads."""

from __future__ import annotations

import os
import secrets
import socket
import threading


def process_name() -> str:
    """Return the name of this process: ``host/pid/random``; a forked child has its own."""
    return _process


def new_owner() -> str:
    """Return a token that no other acquisition has: ``host/pid/thread/random``."""
    return f"{_place}/{threading.get_ident()}/{secrets.token_hex(8)}"


def _name_process() -> None:
    global _place, _process
    # The values of locks are split at spaces, which no host name should have.
    _place = f"{socket.gethostname().replace(' ', '-')}/{os.getpid()}"
    _process = f"{_place}/{secrets.token_hex(4)}"


_place = _process = ""
_name_process()
os.register_at_fork(after_in_child=_name_process)
