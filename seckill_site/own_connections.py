"""Redis connections that each thread keeps for itself.

redis-py's pool checks the socket of each connection that it hands out, and a timeout in Python adds
a system call before each write and each read. Every such call releases the interpreter lock, and a
thread of a busy web server then has to wait for it again. ``docs/performance.md`` has the cost.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from time import monotonic
from typing import Any
from weakref import WeakSet

from redis import ConnectionPool, RedisError

FRESH_S = 0.01
"""A connection that was used this recently is handed out without another check.

Long compared with the pauses of a busy thread, and shorter than a restart of Redis.
"""


class OwnConnections(ConnectionPool):
    """A pool that gives each returning thread the connection that it had last.

    That connection does not count towards the pool's maximum, and closes with its thread. A
    thread's first connection, and a second one at the same time, come from redis-py's own pool.
    """

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
        if connection.is_connected and monotonic() - self.used_at > FRESH_S and self._is_stale():
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
