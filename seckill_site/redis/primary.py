"""Which Redis is the ledger: recognising a replica, and a server that took over.

A switchover may leave connections open: the old primary becomes a replica and keeps responding. So
an answer that says so (``DOUBTS``) closes all connections of the process, and the next command
resolves the address again. Each new connection asks for role and run id. A replica is refused; a
changed run id closes the connections to the server before. ``restart_watch.py`` rebuilds the sales.
"""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from redis import RedisError
from redis.exceptions import ReadOnlyError

from locks.lua_script import Command

logger = logging.getLogger(__name__)

DOUBTS = frozenset({"READONLY", "NOREPLICAS", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN"})
"""The errors after which another server may be the primary."""

_DOUBTS_IN_SCRIPT = re.compile(rf"-({'|'.join(sorted(DOUBTS))})\b")
"""The same as Redis 6 reports them from within a script."""

HANDSHAKE: tuple[Command, ...] = (("INFO", "server"), ("INFO", "replication"))
"""What each new connection asks first."""


class Primary:
    """The server that a process takes for the primary, by its run id."""

    def __init__(self) -> None:
        """Know none yet."""
        self.run_id = ""
        self._closers: list[Callable[[], None]] = []

    def closes(self, close: Callable[[], None]) -> None:
        """Have this close connections of its own, from any thread, where the server is in doubt."""
        self._closers.append(close)

    def distrust(self, *, but: Callable[[], None] | None = None) -> None:
        """Close all connections to the server: the next ones resolve its address again.

        Those that ``but`` closes stay open.
        """
        for close in self._closers:
            if close != but:
                close()

    def meet(self, replies: Sequence[Any], *, mine: Callable[[], None] | None = None) -> None:
        """Judge the server of a new connection by its replies to ``HANDSHAKE``.

        On another run of the server all other connections are closed, but not what ``mine`` closes.

        :raises redis.exceptions.ReadOnlyError: it is a replica.
        """
        said = "".join(_text(it) for it in replies)
        if _field(said, "role") not in ("", "master"):
            raise ReadOnlyError("You can't use a replica as the ledger.", status_code="READONLY")
        before, self.run_id = self.run_id, _field(said, "run_id")
        if before not in ("", self.run_id):
            logger.warning("the ledger is on another run of Redis now: %s", self.run_id)
            self.distrust(but=mine)


def is_doubt(error: RedisError) -> bool:
    """Return whether an answer suggests that another server is the primary now."""
    text = str(error)
    code = getattr(error, "status_code", None) or text.partition(" ")[0]
    return code in DOUBTS or _DOUBTS_IN_SCRIPT.search(text) is not None


def _text(reply: Any) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def _field(info: str, name: str) -> str:
    """Return a field of INFO; empty if some service hides it."""
    match = re.search(rf"^{name}:(\w*)", info, re.MULTILINE)
    return match[1] if match else ""
