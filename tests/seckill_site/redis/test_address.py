"""Addresses of Redis and of services: what they mean, and that each connection asks anew."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from kombu import Connection
from redis import ConnectionPool
from redis.sentinel import Sentinel as SentinelsOfRedisPy

from seckill_site.broker import transport
from seckill_site.broker.messages import ONCE
from seckill_site.front_door.ledger_node import LONGEST_S
from seckill_site.redis.address import ASK_S, NoPrimary, NoServiceName, address_of, kombu_address
from seckill_site.redis.watched_connections import WatchedConnections
from tests.faults.conftest import OwnRedis
from tests.seckill_site.broker.test_transport import consume
from tests.support.patience import wait_for
from tests.support.sentinels import HOST, Sentinel, monitor, service_url

THREE = "redis+sentinel://h1:26379,h2,[::1]:26380"

quick = pytest.mark.quick

# --- What an address means ------------------------------------------------------------------------


@quick
@pytest.mark.parametrize(
    ("text", "url", "database"),
    [
        (f"{THREE}/shop/3", "redis://shop/3", ("shop", 3)),
        (f"{THREE}/shop", "redis://shop/0", ("shop", 0)),
        (f"{THREE}/shop/", "redis://shop/0", ("shop", 0)),
        (f"{THREE}/s%20h/1", "redis://s%20h/1", ("s h", 1)),
        (
            "redis+sentinel://ada:p%40w@h1/shop/1?sentinel_password=s",
            "redis://ada:p%40w@shop/1",
            ("shop", 1),
        ),
        (
            "rediss+sentinel://:pw@h1/shop/1?ssl_ca_certs=%2Fca",
            "rediss://:pw@shop/1?ssl_ca_certs=%2Fca&ssl_cert_reqs=required",
            ("shop", 1),
        ),
        ("redis://h1", "redis://h1", (("h1", 6379), 0)),
        ("redis:///4", "redis:///4", (("localhost", 6379), 4)),
        ("unix:///run/redis?db=2", "unix:///run/redis?db=2", ("/run/redis", 2)),
    ],
)
def test_address_means(text: str, url: str, database: object) -> None:
    address = address_of(text)
    assert (address.url, address.database) == (url, database)


@quick
def test_location_is_one_server_for_django_redis() -> None:
    location = address_of(f"{THREE}/shop/3").location
    assert "," not in location
    again = address_of(location)
    assert (again.url, len(again._sentinels)) == ("redis://shop/3", 3)


@quick
@pytest.mark.parametrize("path", ["", "/", "/0", "/12/", "?sentinel_password=x"])
def test_address_without_a_service_says_so_when_it_connects(path: str) -> None:
    with pytest.raises(NoServiceName, match="no service"):
        address_of(f"{THREE}{path}").primary()


@quick
@pytest.mark.parametrize(
    "text",
    [
        "redis+sentinel://",
        "redis+sentinel://h1/shop/x",
        "redis+sentinel://h1/shop/1/2",
        "redis+sentinel://h1:port/shop/1",
        "redis+socket:///run/redis",
        "h1:6379",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        address_of(text)


@quick
def test_plain_address_leaves_all_to_redis_py() -> None:
    assert address_of("redis://h1/0").options == {}
    assert kombu_address("redis://h1/2") == kombu_address("amqp://h1//") == (None, {})


@quick
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_tls_and_passwords_reach_sentinels_and_nodes(scheme: str) -> None:
    address = address_of(
        f"{scheme}+sentinel://ada:node@h1/shop/1?sentinel_password=own&ssl_ca_certs=%2Fca"
    )
    [sentinel] = [it.connection_pool for it in address._sentinels]
    threads, loop = address.connections(ConnectionPool), address.loop_connections()
    for pool, words in ((sentinel, (None, "own")), (threads, ("ada", "node")), (loop, None)):
        options: dict[str, Any] = pool.connection_kwargs
        assert options["ssl_ca_certs"] == "/ca"
        assert ("SSL" in str(pool.connection_class.__mro__)) == (scheme == "rediss")
        assert words is None or (options.get("username"), options["password"]) == words
    assert "db" not in sentinel.connection_kwargs


# --- Asking the sentinels -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    with OwnRedis(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def sentinel(node: OwnRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinel]:
    with Sentinel(tmp_path_factory.mktemp("sentinel"), *monitor("shop", node.port)) as sentinel:
        yield sentinel


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, node: OwnRedis) -> list[int]:
    """Count the questions to the sentinels of any service, which all lead to the node."""
    asked: list[int] = []

    def primary(_: object) -> tuple[str, int]:
        asked.append(1)
        return HOST, node.port

    monkeypatch.setattr("seckill_site.redis.address.Address.primary", primary)
    return asked


def test_broken_connection_of_a_thread_asks_again(asked: list[int]) -> None:
    """redis-py's own connection to a service does not (its issue 3874)."""
    pool = address_of(service_url([1], "shop", 2)).connections(WatchedConnections)
    theirs = SentinelsOfRedisPy([(HOST, 1)]).master_for("shop").connection_pool
    theirs.proxy.get_master_address = asked_by(theirs, asked)
    assert (asks_of(pool, asked), asks_of(theirs, asked)) == (2, 1)


def asked_by(pool: Any, asked: list[int]) -> Any:
    def get_master_address() -> tuple[str, int]:
        from_ours = address_of(service_url([1], "shop", 2)).primary()
        pool.proxy.master_address = from_ours
        return from_ours

    return get_master_address


def asks_of(pool: Any, asked: list[int]) -> int:
    before = len(asked)
    connection = pool.get_connection()
    connection.disconnect()
    connection.send_command("PING")
    assert connection.read_response() in (b"PONG", "PONG")
    connection.disconnect()
    return len(asked) - before


def test_broken_connection_of_a_loop_asks_again(asked: list[int]) -> None:
    async def talk() -> None:
        connection = address_of(service_url([1], "shop", 3)).loop_connections().make_connection()
        for _ in range(2):
            await connection.send_command("PING")
            assert await connection.read_response() == b"PONG"
            await connection.disconnect()

    asyncio.run(talk())
    assert len(asked) == 2


def test_shops_transport_serves_a_service(sentinel: Sentinel, node: OwnRedis) -> None:
    """With what it holds against junk and equal messages."""
    transport.register()
    url, options = kombu_address(service_url([sentinel], "shop", 4))
    with Connection(str(url), transport_options=options) as connection:
        assert connection.as_uri() == "redis://:**@shop:6379/4"
        channel: Any = connection.default_channel
        assert isinstance(channel, transport.Channel)
        assert channel.client.ping()
        for junk in (b"no JSON", b"{}", b"null"):
            node.client(4).lpush("tests", junk)
        queue = connection.SimpleQueue("tests").queue
        for _ in range(2):
            connection.Producer().publish(
                "text", routing_key="tests", declare=[queue], headers={ONCE: True}
            )
        assert node.client(4).llen("tests") == 4, "equal messages wait once"
        [message] = consume(connection, 1)
        message.ack()
        assert not node.client(4).exists("tests", "unacked")


def test_two_silent_sentinels_cost_little_and_only_once(sentinel: Sentinel, node: OwnRedis) -> None:
    assert 2 * ASK_S < LONGEST_S / 3
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(2)]
        ports = [it.getsockname()[1] for it in silent]
        address = address_of(service_url([*ports, sentinel], "shop"))

        def leads_to_the_node() -> bool:
            with suppress(NoPrimary):  # on a busy machine the third may be late, too
                return address.primary() == (HOST, node.port)
            return False

        wait_for(leads_to_the_node, what="the third sentinel")
        assert address._first == 2


def test_service_without_primary_is_refused_by_name(sentinel: Sentinel) -> None:
    with pytest.raises(NoPrimary, match="No sentinel knows the service: other"):
        address_of(service_url([1, sentinel], "other")).primary()
