"""The proxy that injects faults, between a real client and a Redis of the tests' own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from tests.locks.servers import servers
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy, NoFaultError


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with servers(1) as (server,):
        yield server.port


@pytest.fixture
def proxy(port: int) -> Iterator[FaultProxy]:
    with FaultProxy(("127.0.0.1", port)) as proxy:
        yield proxy


@pytest.fixture
def server(port: int) -> Iterator[Redis]:
    """The server itself, past the proxy."""
    with Redis(port=port) as server:
        server.flushall()
        yield server


@pytest.fixture
def client(proxy: FaultProxy, server: Redis) -> Iterator[Redis]:
    """A connected client that never retries and waits only a moment for an answer."""
    with Redis.from_url(proxy.url(0), socket_timeout=0.1, retry=Retry(NoBackoff(), 0)) as client:
        client.ping()
        yield client


def test_dropped_reply_is_an_error_for_what_was_done(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    proxy.drop_replies(matching=b"incr")
    client.set("other", 1)
    with pytest.raises(NoFaultError):
        proxy.wait_for_fault(0.01)

    with pytest.raises(ConnectionError):
        client.incr("counter")

    proxy.wait_for_fault()
    assert server.get("counter") == b"1"
    assert proxy.forwarded_requests(b"INCR") == proxy.dropped == 1
    assert client.incr("counter") == 2


def test_held_reply_is_late_for_what_was_done(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    proxy.hold_replies(matching=b"INCR")

    with pytest.raises(TimeoutError):
        client.incr("counter")

    assert server.get("counter") == b"1"
    assert client.incr("counter") == 2


def test_stalled_request_is_done_after_the_heal(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    client_id = client.client_id()
    proxy.stall()
    with pytest.raises(TimeoutError):
        client.incr("counter")
    proxy.wait_for_fault()
    assert server.get("counter") is None

    proxy.heal()

    wait_for(lambda: not server.client_list(client_id=[client_id]))
    assert client.incr("counter") == 2


def test_new_connection_is_refused_until_the_heal(proxy: FaultProxy, client: Redis) -> None:
    proxy.refuse()
    with Redis.from_url(proxy.url(0), retry=Retry(NoBackoff(), 0)) as other:
        with pytest.raises(ConnectionError, match="refused"):
            other.ping()
        assert client.ping(), "what is connected stays so"

        proxy.heal()

        assert other.ping()


@pytest.mark.parametrize("fault", ["heal", "stall", "hold_replies", "refuse"])
def test_closing_leaves_no_thread_and_no_socket(fault: str, port: int) -> None:
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))

    with (
        FaultProxy(("127.0.0.1", port)) as proxy,
        Redis.from_url(proxy.url(0), retry=Retry(NoBackoff(), 0)) as client,
    ):
        client.ping()
        getattr(proxy, fault)()
        proxy.close()

    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
