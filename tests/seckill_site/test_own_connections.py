"""Each thread's own connection to Redis: whose it is, and what becomes of one that broke."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from locks.lua_script import send_once
from seckill_site import own_connections
from seckill_site.ledger_connection import ledger_connection
from seckill_site.own_connections import OwnConnections
from tests.support.proxy import FaultProxy, redis_server

TIMEOUT_S = 0.5


def pool_at(url: str, **options: Any) -> OwnConnections:
    return OwnConnections.from_url(
        url, decode_responses=True, socket_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0), **options
    )


@pytest.fixture
def pool() -> Iterator[OwnConnections]:
    """A pool whose thread has been here before, so that it gets a connection of its own."""
    pool = pool_at(settings.REDIS_URL)
    warm_up(pool)
    yield pool
    pool.disconnect()


def warm_up(pool: OwnConnections) -> None:
    Redis(connection_pool=pool).ping()


def taken(pool: OwnConnections) -> Any:
    """Take a connection and bring it back."""
    connection = pool.get_connection()
    pool.release(connection)
    return connection


def client_id(pool: OwnConnections) -> int:
    return int(Redis(connection_pool=pool).client_id())


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(20)
    return found[0]


def test_ledger_client_uses_the_pool() -> None:
    assert isinstance(ledger_connection().connection_pool, OwnConnections)


def test_thread_reuses_its_own_connection(pool: OwnConnections) -> None:
    def twice() -> list[int]:
        return [client_id(pool) for _ in range(3)][1:]

    mine, others = twice(), in_a_thread(twice)
    assert mine[0] == mine[1]
    assert others[0] == others[1] != mine[0]


def test_first_request_of_thread_uses_shared_connection(pool: OwnConnections) -> None:
    assert len({in_a_thread(lambda: client_id(pool)) for _ in range(5)}) == 1


def test_second_simultaneous_connection_is_another_one(pool: OwnConnections) -> None:
    first, second = pool.get_connection(), pool.get_connection()
    assert first is not second
    pool.release(second)
    pool.release(first)
    assert taken(pool) is first


def test_fresh_connection_is_not_checked(
    pool: OwnConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = taken(pool)
    looks = []
    monkeypatch.setattr(connection, "can_read", lambda: looks.append(1))
    monkeypatch.setattr(own_connections, "FRESH_S", 60)
    taken(pool)
    assert not looks
    monkeypatch.setattr(own_connections, "FRESH_S", 0)
    taken(pool)
    assert looks


def test_closed_connection_is_reopened(pool: OwnConnections) -> None:
    before = client_id(pool)
    with Redis.from_url(settings.REDIS_URL) as other:
        other.client_kill_filter(_id=str(before))
    time.sleep(2 * own_connections.FRESH_S)
    assert send_once(Redis(connection_pool=pool), ("PING",)) == ["PONG"]
    assert client_id(pool) != before


def test_fresh_connection_closed_by_server_fails_once(
    pool: OwnConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_connections, "FRESH_S", 60)
    client = Redis(connection_pool=pool)
    with Redis.from_url(settings.REDIS_URL) as other:
        other.client_kill_filter(_id=str(client_id(pool)))
    with pytest.raises(RedisError):
        send_once(client, ("PING",))
    assert send_once(client, ("PING",)) == ["PONG"]


def test_silent_server_times_out_and_late_reply_is_dropped() -> None:
    with FaultProxy(redis_server(settings.REDIS_URL)) as proxy:
        known = parse_url(settings.REDIS_URL)
        password = {name: known[name] for name in ("username", "password") if name in known}
        pool = pool_at(f"redis://127.0.0.1:{proxy.port}/0", **password)
        client = Redis(connection_pool=pool)
        warm_up(pool)
        send_once(client, ("SET", "own:a", "1"))
        assert taken(pool)._sock.gettimeout() is None  # it is the kernel that waits
        proxy.stall()
        began_at = time.monotonic()
        with pytest.raises(RedisError):
            send_once(client, ("GET", "own:a"))
        assert TIMEOUT_S * 0.9 < time.monotonic() - began_at < 20 * TIMEOUT_S
        proxy.heal()
        assert send_once(client, ("GET", "own:b"), ("GET", "own:a")) == [None, "1"]
        client.delete("own:a")
        pool.disconnect()


def test_missing_timeout_sets_none_on_socket() -> None:
    pool = OwnConnections.from_url(settings.REDIS_URL, socket_timeout=None)
    warm_up(pool)
    sock = taken(pool)._sock
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO) == 0
    pool.disconnect()


def test_forked_child_opens_its_own_connections(pool: OwnConnections) -> None:
    before = client_id(pool)
    child = os.fork()
    if not child:
        warm_up(pool)
        os._exit(0 if client_id(pool) != before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client_id(pool) == before


def test_connection_closes_when_its_thread_ends(pool: OwnConnections) -> None:
    def come_again() -> int:
        warm_up(pool)
        return client_id(pool)

    gc.disable()
    try:
        theirs = in_a_thread(come_again)
        with Redis.from_url(settings.REDIS_URL) as other:
            until = time.monotonic() + 10
            while any(int(it["id"]) == theirs for it in other.client_list()):
                assert time.monotonic() < until
                time.sleep(0.01)
    finally:
        gc.enable()


def test_closing_the_pool_closes_all_connections(pool: OwnConnections) -> None:
    connection = taken(pool)
    assert connection.is_connected
    pool.disconnect()
    assert not connection.is_connected
    assert taken(pool) is connection
    assert connection.is_connected
