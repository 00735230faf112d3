"""Connections of threads to the ledger's Redis, which watch who the server is (``primary.py``)."""

from time import perf_counter
from typing import Any

from redis import Connection, ConnectionPool, RedisError
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NoReply

from seckill_site.metrics import histogram
from seckill_site.redis.breaker import Breaker
from seckill_site.redis.primary import HANDSHAKE, Primary, is_doubt


class WatchedConnections(ConnectionPool):
    """redis-py's pool, all of whose connections are closed where one is in doubt."""

    def __init__(self, connection_class: Any = Connection, **options: Any) -> None:
        """Prepare connections of a class that watches what the server says."""
        watched = type("Watched", (_Watched, connection_class), {"pool": self})
        options["redis_connect_func"] = self._meet
        super().__init__(connection_class=watched, **options)
        self.primary = Primary()
        self.primary.closes(self._close_all)
        self.breaker = Breaker(NotConnected, server="redis")

    def distrust(self) -> None:
        """Close all connections of the process to this server, those of event loops included."""
        self.primary.distrust()

    def _meet(self, connection: Any) -> None:
        """Log in on a new connection, and ask who the server is."""
        connection.on_connect()
        connection.send_packed_command(connection.pack_commands(HANDSHAKE), check_health=False)
        self.primary.meet([connection.read_response() for _ in HANDSHAKE])

    def _close_all(self) -> None:
        """Close the connections of threads, those in use as soon as they are returned."""
        self.disconnect(inuse_connections=False)
        self.update_active_connections_for_reconnect()


class _Watched(AbstractConnection):
    """A connection that heeds the doubts and the silence of its server."""

    pool: WatchedConnections
    _sent_s = 0.0

    def connect_check_health(self, *args: Any, **options: Any) -> None:
        if not self.is_connected:
            with self.pool.breaker.attempt():
                super().connect_check_health(*args, **options)

    def send_packed_command(self, *args: Any, **options: Any) -> None:
        self._sent_s = perf_counter()
        super().send_packed_command(*args, **options)  # type: ignore[no-untyped-call]

    def read_response(self, *args: Any, **options: Any) -> Any:
        sent_s, self._sent_s = self._sent_s, 0.0
        try:
            reply = super().read_response(*args, **options)
            if sent_s:  # the first of a pipeline
                histogram("ledger").observe(perf_counter() - sent_s)
            return reply
        except NoReply as error:
            self.pool.breaker.trip(error)
            self.pool.distrust()
            raise
        except RedisError as error:
            if is_doubt(error):
                self.pool.distrust()
            raise
