"""Connections of threads to the ledger: what becomes of them where one is in doubt."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NoReply
from redis.retry import Retry

from locks.lua_script import send_once
from seckill_site.redis.breaker import Breaker
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.redis.watched_connections import WatchedConnections
from tests.support.patience import GENEROUS_S

DOUBTFUL = ("EVAL", "return redis.error_reply('READONLY it says')", "0")
MISTAKEN = ("EVAL", "return redis.error_reply('ERR it says')", "0")


@pytest.fixture
def client() -> Iterator[Redis]:
    pool = WatchedConnections.from_url(settings.REDIS_URL, retry=Retry(NoBackoff(), 0))
    yield Redis(connection_pool=pool)
    pool.disconnect()


def connection_ids(client: Redis) -> list[int]:
    """Take two connections at a time, and say which they are."""
    pool: Any = client.connection_pool
    first, second = pool.get_connection(), pool.get_connection()
    found = []
    for connection in (first, second):
        connection.send_command("CLIENT", "ID")
        found.append(connection.read_response())
        pool.release(connection)
    return sorted(found)


def test_ledger_client_uses_the_pool() -> None:
    assert isinstance(ledger_connection().connection_pool, WatchedConnections)


def test_connections_are_used_again(client: Redis) -> None:
    assert connection_ids(client) == connection_ids(client)


@pytest.mark.parametrize(
    ("said", "closes"), [(DOUBTFUL, True), (MISTAKEN, False)], ids=["doubt", "mistake"]
)
def test_doubt_closes_all_connections(client: Redis, said: Any, closes: bool) -> None:
    before = connection_ids(client)
    try:
        send_once(client, said)
    except RedisError:
        pytest.fail("errors of a command are replies")
    assert set(before).isdisjoint(connection_ids(client)) is closes


def test_connection_in_use_closes_when_it_is_returned(client: Redis) -> None:
    pool: Any = client.connection_pool
    kept = pool.get_connection()
    send_once(client, DOUBTFUL)
    assert kept.is_connected
    pool.release(kept)
    assert not kept.is_connected


@pytest.fixture
def hasty() -> Iterator[Redis]:
    """A client that waits for hardly anything."""
    once = Retry(NoBackoff(), 0)
    pool = WatchedConnections.from_url(settings.REDIS_URL, retry=once, socket_timeout=0.5)
    yield Redis(connection_pool=pool)
    pool.disconnect()


def test_silence_closes_all_connections_and_opens_the_breaker(hasty: Redis) -> None:
    before = connection_ids(hasty)
    pool: Any = hasty.connection_pool
    pool.breaker.pause_s = GENEROUS_S
    with pytest.raises(NoReply):
        send_once(hasty, ("BLPOP", "nothing-comes", 30))
    with pytest.raises(NotConnected, match="not tried again yet"):
        send_once(hasty, ("PING",))
    pool.breaker = Breaker(NotConnected)  # as after the pause
    assert set(before).isdisjoint(connection_ids(hasty))


def test_silent_server_is_not_asked_by_everybody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it accepts, and says nothing
        options = {"host": "127.0.0.1", "port": mute.getsockname()[1], "socket_timeout": 0.5}
        pool = WatchedConnections(retry=Retry(NoBackoff(), 0), **options)
        pool.breaker.pause_s = GENEROUS_S
        client = Redis(connection_pool=pool)
        with pytest.raises(RedisError):
            send_once(client, ("PING",))
        with pytest.raises(NotConnected, match="not tried again yet"):
            send_once(client, ("PING",))
