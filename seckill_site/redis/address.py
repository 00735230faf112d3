"""Where a Redis is: at an address, or wherever the sentinels of a service say (``docs/adr/0055``).

An address of the settings is parsed here alone, and what connects is made here. A connection to a
service asks the sentinels whenever it connects, also where redis-py connects again by itself in the
middle of a command. It asks for the primary only.
"""

import asyncio
import os
import re
from functools import cache, cached_property
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django_redis import pool
from redis import Connection, ConnectionPool, Redis, RedisError, SSLConnection
from redis import asyncio as in_loop
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.exceptions import ConnectionError as NotConnected
from redis.retry import Retry

P = TypeVar("P", bound=ConnectionPool)

ASK_S = 0.15
"""The longest wait for a sentinel. Two dead ones leave a question most of its second."""

_SERVICE = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?P<user>[^@/?]*@)?(?P<hosts>[^@/?]+)"
    r"(?:/(?P<name>(?![0-9]+/?(?:\?|$))[^/?]+))?(?:/(?P<db>[0-9]*))?/?(?:\?(?P<query>.*))?"
)
"""Without the name of a service, what is only a number is the database."""


class NoPrimary(NotConnected):
    """The sentinels know no primary of the service"""


class NoSuchService(NoPrimary):
    """No sentinel knows the service"""


class NoSentinel(NoPrimary):
    """No sentinel responds"""


class NoServiceName(NoPrimary):
    """The address names sentinels, but no service"""


class Address:
    """A Redis as the settings name it. ``address_of`` makes one for each text."""

    def __init__(self, text: str) -> None:
        """Parse it.

        :raises ValueError: it is no address of a Redis
        """
        self.url = text
        # django-redis would take a comma for the end of one server.
        self.location: Any = text.replace(",", "%2C")
        self.service, self._sentinels, self._first = "", list[Redis](), 0
        if "+sentinel:" in text:
            self._parse_service(text)
        parts = parse_url(self.url)  # type: ignore[no-untyped-call]
        server = parts.get("path") or (parts.get("host", "localhost"), parts.get("port", 6379))
        self.database = (self.service if self._sentinels else server), parts.get("db", 0)
        """Which database it is, however its address is written."""

    def _parse_service(self, text: str) -> None:
        found = _SERVICE.fullmatch(text)
        if found is None:
            raise ValueError("the form is redis+sentinel://host:26379,host:26379/service/database")
        query = dict(parse_qsl(found["query"] or ""))
        password = query.pop("sentinel_password", None)
        if found["scheme"] == "rediss":
            query.setdefault("ssl_cert_reqs", "required")  # Kombu would trust any certificate
        options = f"?{urlencode(query)}" if query else ""
        name, user, db = (found[it] or "" for it in ("name", "user", "db"))
        self.service = unquote(name)
        self.url = f"{found['scheme']}://{user}{name or 'service'}/{db or 0}{options}"
        self._sentinels = [
            _client(f"{found['scheme']}://{host}{options}", ASK_S, port=26379, password=password)
            for host in unquote(found["hosts"]).split(",")
        ]

    def primary(self) -> tuple[str, int]:
        """Ask the sentinels for the primary, first the one that knew it the last time.

        :raises NoPrimary: none knows it
        """
        if not self.service:
            raise NoServiceName(NoServiceName.__doc__)
        met, errors = set[type[NoPrimary]](), list[RedisError]()
        for number in [*range(self._first, len(self._sentinels)), *range(self._first)]:
            try:
                state: Any = self._sentinels[number].sentinel_master(self.service)
            except RedisError as error:
                errors.append(error)
                met |= {NoSuchService} if "No such master" in str(error) else set()
                continue
            if state["is_master"] and not (state["is_sdown"] or state["is_odown"]):
                self._first = number
                return str(state["ip"]), int(state["port"])
            met.add(NoPrimary)
        kind = next((it for it in (NoPrimary, NoSuchService) if it in met), NoSentinel)
        raise kind("; ".join([f"{kind.__doc__}: {self.service}", *map(str, errors)]))

    # --- What is made from it -----------------------------------------------------------------

    @cached_property
    def options(self) -> dict[str, Any]:
        """What redis-py's connections of threads need beside ``url``."""
        kind = SSLConnection if self.url.startswith("rediss:") else Connection
        return self._made(_AsksSentinels, kind)

    @cached_property
    def _loop_options(self) -> dict[str, Any]:
        tls = self.url.startswith("rediss:")
        return self._made(_LoopAsksSentinels, in_loop.SSLConnection if tls else in_loop.Connection)

    def _made(self, *bases: type) -> dict[str, Any]:
        if not self._sentinels:
            return {}
        return {"connection_class": type("ServiceConnection", bases, {"address": self})}

    def connections(self, kind: type[P], **options: Any) -> P:
        """Return a pool of connections for threads."""
        return kind.from_url(self.url, **self.options, **options)

    def loop_connections(self, **options: Any) -> in_loop.ConnectionPool:
        """Return a pool of connections for an event loop."""
        # There, unlike for threads, the scheme of TLS would win over the class of the connection.
        url = re.sub("^rediss:", "redis:", self.url) if self._sentinels else self.url
        return in_loop.ConnectionPool.from_url(url, **self._loop_options, **options)

    def client(self) -> Redis:
        """Return a client that does not wait long, and asks once, for a check."""
        return _client(self.url, 1, **self.options)


class _AsksSentinels(AbstractConnection):
    """A connection of a thread; its host is the primary's once it has connected."""

    address: Address

    def connect_check_health(self, *args: Any, **options: Any) -> None:
        if not self.is_connected:
            self.host, self.port = self.address.primary()
        options["retry_socket_connect"] = False  # a second attempt has to ask again
        super().connect_check_health(*args, **options)


class _LoopAsksSentinels(in_loop.connection.AbstractConnection):
    """The same for an event loop."""

    address: Address

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        if not self.is_connected:
            self.host, self.port = await asyncio.to_thread(self.address.primary)
        options["retry_socket_connect"] = False
        await super().connect_check_health(*args, **options)


def _client(url: str, longest_s: float, **options: Any) -> Redis:
    once = Retry(NoBackoff(), 0)
    times = {"socket_connect_timeout": min(longest_s, 0.5), "socket_timeout": longest_s}
    return Redis.from_url(url, decode_responses=True, retry=once, **times, **options)


@cache
def address_of(text: str) -> Address:
    """Return the address of a text, with what the process knows of its sentinels.

    :raises ValueError: it is no address of a Redis
    """
    return Address(text)


class ConnectionFactory(pool.ConnectionFactory):  # type: ignore[misc]
    """What makes the connections of ``CACHES``, whose ``LOCATION`` is an address."""

    def get_connection_pool(self, params: dict[str, Any]) -> Any:
        """Return a pool for an address, which is what names it among the others."""
        address = address_of(params["url"])
        return super().get_connection_pool({**params, "url": address.url, **address.options})


# --- For the settings -----------------------------------------------------------------------------


def checked_address(name: str, text: str) -> Address:
    """Return the address in a setting.

    :raises ImproperlyConfigured: the text is not an address of a Redis
    """
    try:
        return address_of(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is no address of a Redis: {error}.") from None


def is_rabbitmq() -> bool:
    """Return whether the broker of the settings is RabbitMQ."""
    return os.environ.get("CELERY_BROKER_URL", "").startswith(("amqp://", "amqps://", "pyamqp://"))


def broker_addresses() -> int:
    """Return how many addresses the broker has; those of RabbitMQ are separated by semicolons."""
    return 1 + os.environ.get("CELERY_BROKER_URL", "").count(";")


def is_redis(text: str) -> bool:
    """Return whether an address is one of Redis."""
    return text.startswith(("redis", "unix"))


def kombu_address(text: str) -> tuple[str | None, dict[str, Any]]:
    """Return the URL and the options with which Kombu reaches a service; else nothing of both."""
    if "+sentinel:" not in text:
        return None, {}
    address = checked_address("CELERY_BROKER_URL", text)
    made = address.options["connection_class"]
    return address.url, {"connection_class": made, "connection_class_ssl": made}
