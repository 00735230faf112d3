"""Redis connections that each thread keeps for itself.

redis-py's pool checks the socket of each connection that it hands out, and a timeout in Python adds
a system call before each write and each read. Every such call releases the interpreter lock, and a
thread of a busy web server then has to wait for it again. ``docs/performance.md`` has the cost.

Note [Another primary]
~~~~~~~~~~~~~~~~~~~~~~
A switchover may leave connections open: the old primary becomes a replica and keeps responding. So
an answer that says so (``DOUBTS``) closes all connections of the process, and the next command
resolves the address again. Each new connection asks for role and run id. A replica is refused; a
changed run id closes the connections to the server before. ``restart_watch.py`` rebuilds the sales.
"""

from __future__ import annotations

import logging
import re
import socket
import struct
import threading
from contextlib import suppress
from time import monotonic
from typing import Any
from weakref import WeakSet

from redis import Connection, ConnectionPool, RedisError
from redis.connection import AbstractConnection
from redis.exceptions import ReadOnlyError

logger = logging.getLogger(__name__)

FRESH_S = 0.01
"""A connection that was used this recently is handed out without another check.

Long compared with the pauses of a busy thread, and shorter than a restart of Redis.
"""

DOUBTS = frozenset({"READONLY", "NOREPLICAS", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN"})
"""The errors after which another server may be the primary."""

_DOUBTS_IN_SCRIPT = re.compile(rf"-({'|'.join(sorted(DOUBTS))})\b")
"""The same as Redis 6 reports them from within a script."""


class OwnConnections(ConnectionPool):
    """A pool that gives each returning thread the connection that it had last.

    That connection does not count towards the pool's maximum, and closes with its thread. A
    thread's first connection, and a second one at the same time, come from redis-py's own pool.
    """

    def __init__(self, connection_class: Any = Connection, **options: Any) -> None:
        """Prepare connections of a class that watches what the server says."""
        watched = type("Watched", (_Watched, connection_class), {"pool": self})
        super().__init__(connection_class=watched, **options)
        self.run_id = ""

    def reset(self) -> None:
        """Forget all connections, as a forked child does with its parent's."""
        super().reset()
        self._here = threading.local()
        self._everywhere: WeakSet[_Own] = WeakSet()

    def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        """Return a connection that is open, as far as known.

        :raises redis.RedisError: the server cannot be reached.
        """
        self._checkpid()
        own = self._own()
        if own is None or own.lent:
            return super().get_connection()
        own.open()
        own.lent = True
        return own.connection

    def release(self, connection: Any) -> None:
        """Take a connection back from the thread that it was given to."""
        own: _Own | None = getattr(self._here, "own", None)
        if own is None or own.connection is not connection:
            super().release(connection)
            return
        if connection.should_reconnect():
            connection.disconnect()
        own.used_at = monotonic()
        own.lent = False

    def _own(self) -> _Own | None:
        """Return this thread's own connection, or None when the thread asks for the first time."""
        own: _Own | None = getattr(self._here, "own", None)
        if own is None:
            if not hasattr(self._here, "own"):
                self._here.own = None  # many threads ask once and end: they need none
                return None
            own = self._here.own = _Own(self.connection_class(**self.connection_kwargs))
            self._everywhere.add(own)
        return own

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections of all threads."""
        super().disconnect(inuse_connections)
        for own in list(self._everywhere):
            if inuse_connections or not own.lent:
                own.connection.disconnect()

    def distrust(self) -> None:
        """Close the connections of all threads, those in use as soon as they are returned.

        See Note [Another primary].
        """
        with self._lock:
            for connection in self._available_connections:
                connection.disconnect()
            for connection in self._in_use_connections:
                connection.mark_for_reconnect()
        for own in list(self._everywhere):
            own.connection.mark_for_reconnect()

    def meet(self, *, role: str, run_id: str) -> None:
        """Judge the server of a new connection.

        :raises redis.exceptions.ReadOnlyError: it is a replica.
        """
        if role not in ("", "master"):
            raise ReadOnlyError("You can't use a replica as the ledger.", status_code="READONLY")
        before, self.run_id = self.run_id, run_id
        if before not in ("", run_id):
            logger.warning("the ledger is on another run of Redis now: %s", run_id)
            self.distrust()


class _Watched(AbstractConnection):
    """A connection that asks who the server is, and heeds its doubts: Note [Another primary]."""

    pool: OwnConnections

    def on_connect_check_health(self, check_health: bool = True) -> None:
        super().on_connect_check_health(check_health=check_health)
        this: Any = self  # redis-py types neither of the next two
        sections = [("INFO", "server"), ("INFO", "replication")]
        this.send_packed_command(this.pack_commands(sections), check_health=False)
        said = "".join(_text(self.read_response()) for _ in sections)
        self.pool.meet(role=_field(said, "role"), run_id=_field(said, "run_id"))

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except RedisError as error:
            if is_doubt(error):
                self.pool.distrust()
            raise


def is_doubt(error: RedisError) -> bool:
    """Return whether an answer suggests that another server is the primary now."""
    text = str(error)
    code = getattr(error, "status_code", None) or text.partition(" ")[0]
    return code in DOUBTS or _DOUBTS_IN_SCRIPT.search(text) is not None


def _text(reply: Any) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def _field(info: str, name: str) -> str:
    """Return a field of INFO; empty if some service hides it."""
    found = re.search(rf"^{name}:(\w*)", info, re.MULTILINE)
    return found[1] if found else ""


class _Own:
    """One thread's connection, and when it was last known to be open."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.lent = False
        self.used_at = 0.0
        connection.register_connect_callback(self._let_the_kernel_wait)

    def __del__(self) -> None:
        with suppress(Exception):  # for example, if the interpreter is shutting down
            self.connection.disconnect()  # otherwise it waits for the garbage collector

    def open(self) -> None:
        """Ensure that it is open, as redis-py's pool does; trust one that was just used."""
        connection = self.connection
        if connection.is_connected and (
            connection.should_reconnect()
            or (monotonic() - self.used_at > FRESH_S and self._is_stale())
        ):
            connection.disconnect()
        if not connection.is_connected:
            connection.connect()

    def _is_stale(self) -> bool:
        """Return whether the server has closed it, or sent something that nobody asked for."""
        try:
            return bool(self.connection.can_read())
        except RedisError:
            return True

    def _let_the_kernel_wait(self, connection: Any) -> None:
        """Set the timeout in the kernel instead of Python; exceeding it is an error as before."""
        timeout_s = connection.socket_timeout
        if timeout_s is None:
            return
        seconds, fraction = divmod(timeout_s, 1)
        value = struct.pack("ll", int(seconds), int(fraction * 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection._sock.setsockopt(socket.SOL_SOCKET, option, value)
        connection._sock.settimeout(None)
