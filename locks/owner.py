"""Names of this process and of one acquisition by one of its threads."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from functools import cache


@cache
def process_name() -> str:
    """Return the name of this process: ``host/pid/random``; a forked child has its own."""
    # The values of locks are split at spaces, which no host name should have.
    return f"{socket.gethostname().replace(' ', '-')}/{os.getpid()}/{secrets.token_hex(4)}"


def new_owner() -> str:
    """Return a token that no other acquisition has: ``host/pid/thread/random``."""
    place = process_name().rpartition("/")[0]
    return f"{place}/{threading.get_ident()}/{secrets.token_hex(8)}"


os.register_at_fork(after_in_child=process_name.cache_clear)
