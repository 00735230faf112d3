"""The proxy that injects faults, between real clients and the tests' Redis."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from tests.locks.servers import servers
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy, NoFaultError

DB = 3
SHORT_SECONDS = 0.1
LONG_SECONDS = 5.0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A Redis of these tests' own that wants no password, so that a bare line may speak at once."""
    with servers(1) as (server,):
        yield server.port


@pytest.fixture
def proxy(port: int) -> Iterator[FaultProxy]:
    with Redis(port=port) as server:
        server.flushall()
    with FaultProxy(("127.0.0.1", port)) as proxy:
        yield proxy


@pytest.fixture
def server(port: int) -> Iterator[Redis]:
    """The server itself, past the proxy."""
    with Redis(port=port, db=DB) as server:
        yield server


def client_of(proxy: FaultProxy, *, seconds: float = LONG_SECONDS) -> Redis:
    """Return a client through the proxy that never retries."""
    return Redis.from_url(proxy.url(DB), socket_timeout=seconds, retry=Retry(NoBackoff(), 0))


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Redis]:
    """A connected client that never retries."""
    with client_of(proxy) as client:
        client.ping()
        yield client


@pytest.fixture
def hasty(proxy: FaultProxy) -> Iterator[Redis]:
    """A connected client that never retries and waits only a moment for an answer."""
    with client_of(proxy, seconds=SHORT_SECONDS) as client:
        client.ping()
        yield client


@pytest.fixture
def line(proxy: FaultProxy) -> Iterator[socket.socket]:
    """A bare connection, which hides nothing."""
    with connection_to(proxy) as line:
        assert ask(line, b"SELECT %d\r\n" % DB) == b"+OK\r\n"
        yield line


def connection_to(proxy: FaultProxy, *, seconds: float = LONG_SECONDS) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=seconds)


def read_all(line: socket.socket) -> None:
    while line.recv(1024):
        pass


def ask(line: socket.socket, request: bytes) -> bytes:
    line.sendall(request)
    return line.recv(1024)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_until_closed(server: Redis, client_id: int) -> None:
    wait_for(lambda: not server.client_list(client_id=[client_id]))


# --- No fault -------------------------------------------------------------------------------------


def test_without_a_fault_everything_passes(proxy: FaultProxy, client: Redis) -> None:
    large = os.urandom(1_000_000)

    client.set("large", large)

    assert client.get("large") == large
    assert proxy.forwarded_requests(b"get\r\n") == 1
    with pytest.raises(NoFaultError):
        proxy.wait_for_fault(0.01)


def test_many_clients_pass_at_the_same_time(proxy: FaultProxy, server: Redis) -> None:
    def count() -> None:
        with client_of(proxy) as client:
            for _ in range(20):
                client.incr("counter")

    threads = [threading.Thread(target=count) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)

    assert server.get("counter") == b"400"
    assert proxy.forwarded_requests(b"incr") == 400


# --- Drop the reply -------------------------------------------------------------------------------


def test_a_dropped_reply_is_an_error_for_what_was_done(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    proxy.drop_replies(matching=b"incr")

    with pytest.raises(ConnectionError):
        client.incr("counter")

    proxy.wait_for_fault()
    assert server.get("counter") == b"1"
    assert proxy.forwarded_requests(b"INCR") == proxy.dropped == 1
    assert client.incr("counter") == 2


def test_control_a_client_that_retries_does_it_twice(proxy: FaultProxy, server: Redis) -> None:
    with Redis("127.0.0.1", proxy.port, DB) as client:  # from_url() would not retry
        proxy.drop_replies(matching=b"INCR")

        assert client.incr("counter") == 2

    assert server.get("counter") == b"2"
    assert proxy.forwarded_requests(b"INCR") == 2


def test_replies_are_dropped_twice_and_no_more(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    proxy.drop_replies(times=2, matching=b"INCR")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            client.incr("counter")

    proxy.wait_for_fault(times=2)
    assert client.incr("counter") == 3


def test_replies_are_dropped_until_it_is_healed(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    proxy.drop_replies(times=None, matching=b"INCR")
    for _ in range(5):
        with pytest.raises(ConnectionError):
            client.incr("counter")

    proxy.heal()

    assert client.incr("counter") == 6
    assert proxy.dropped == 5


def test_other_requests_keep_their_replies(proxy: FaultProxy, client: Redis) -> None:
    proxy.drop_replies(matching=b"INCR")

    assert client.set("other", 1)

    with pytest.raises(NoFaultError):
        proxy.wait_for_fault(0.01)
    assert proxy.dropped == 0


def test_a_request_torn_apart_is_recognized_and_carried_out_whole(
    proxy: FaultProxy, line: socket.socket, server: Redis
) -> None:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    proxy.drop_replies(matching=b"INCR counter")

    for piece in [b"IN", b"CR cou", b"nter\r", b"\n"]:
        line.sendall(piece)
        time.sleep(0.01)  # or the kernel would put them together again

    with pytest.raises(ConnectionResetError):
        line.recv(1024)

    assert server.get("counter") == b"1"
    assert proxy.forwarded_requests(b"incr counter") == 1


def test_dropped_reply_leaves_a_long_pipeline_done(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    proxy.drop_replies(matching=b"INCR")
    with client.pipeline(transaction=False) as pipe:
        for _ in range(5_000):
            pipe.incr("counter")

        with pytest.raises(ConnectionError):
            pipe.execute()

    assert server.get("counter") == b"5000"


# --- Hold the reply -------------------------------------------------------------------------------


def test_a_held_reply_comes_late(proxy: FaultProxy, line: socket.socket, server: Redis) -> None:
    proxy.hold_replies(matching=b"INCR")
    line.sendall(b"INCR counter\r\n")
    proxy.wait_for_fault()
    assert server.get("counter") == b"1"
    line.settimeout(SHORT_SECONDS)
    with pytest.raises(OSError, match="timed out"):
        line.recv(1024)

    proxy.release()

    assert line.recv(1024) == b":1\r\n"
    assert ask(line, b"INCR counter\r\n") == b":2\r\n"


def test_client_works_on_after_a_held_reply_times_out(proxy: FaultProxy, hasty: Redis) -> None:
    proxy.hold_replies(matching=b"INCR")

    with pytest.raises(TimeoutError):
        hasty.incr("counter")

    assert hasty.incr("counter") == 2
    proxy.heal()
    assert hasty.incr("counter") == 3


# --- Stall and swallow ----------------------------------------------------------------------------


def test_a_stalled_request_is_carried_out_after_all(
    proxy: FaultProxy, hasty: Redis, server: Redis
) -> None:
    client_id = hasty.client_id()
    proxy.stall()

    with pytest.raises(TimeoutError):
        hasty.incr("counter")
    proxy.wait_for_fault()

    assert server.get("counter") is None
    proxy.heal()
    wait_until_closed(server, client_id)
    assert server.get("counter") == b"1"
    assert hasty.incr("counter") == 2


def test_a_stalled_reply_comes_after_the_heal(
    proxy: FaultProxy, line: socket.socket, server: Redis
) -> None:
    line.sendall(b"BLPOP list 5\r\n")
    wait_for(lambda: server.info("clients")["blocked_clients"] == 1)
    proxy.stall()
    server.rpush("list", "x")
    proxy.wait_for_fault()
    line.settimeout(SHORT_SECONDS)
    with pytest.raises(OSError, match="timed out"):
        line.recv(1024)

    proxy.heal()

    assert line.recv(1024).endswith(b"x\r\n")


def test_a_new_connection_is_stalled_without_being_refused(proxy: FaultProxy) -> None:
    proxy.stall()
    with connection_to(proxy, seconds=SHORT_SECONDS) as line:
        with pytest.raises(OSError, match="timed out"):
            ask(line, b"PING\r\n")
        line.settimeout(LONG_SECONDS)

        proxy.heal()

        assert line.recv(1024) == b"+PONG\r\n"


def test_a_swallowed_request_is_never_carried_out(
    proxy: FaultProxy, hasty: Redis, server: Redis
) -> None:
    client_id = hasty.client_id()
    proxy.swallow()
    with pytest.raises(TimeoutError):
        hasty.incr("counter")
    proxy.wait_for_fault()

    proxy.heal()

    wait_until_closed(server, client_id)
    assert hasty.incr("counter") == 1
    assert proxy.forwarded_requests(b"INCR") == 1


def test_heal_resets_a_line_that_lost_a_request(proxy: FaultProxy, line: socket.socket) -> None:
    proxy.swallow()
    line.sendall(b"INCR coun")
    proxy.wait_for_fault()

    proxy.heal()

    with pytest.raises(ConnectionResetError):
        line.recv(1024)


def test_nothing_follows_a_swallowed_request_on_its_line(
    proxy: FaultProxy, line: socket.socket
) -> None:
    proxy.swallow()
    line.sendall(b"MULTI\r\n")
    proxy.wait_for_fault()
    proxy.stall()
    line.sendall(b"INCR counter\r\n")
    proxy.wait_for_fault()

    proxy.heal()

    with pytest.raises(ConnectionResetError):
        line.recv(1024)
    assert proxy.forwarded_requests(b"INCR") == 0


# --- Cut, refuse, delay ---------------------------------------------------------------------------


def test_a_cut_resets_what_is_connected(
    proxy: FaultProxy, line: socket.socket, client: Redis
) -> None:
    proxy.cut()

    with pytest.raises(ConnectionResetError):
        line.recv(1024)
    assert client.ping()


def test_new_connections_are_refused_until_it_is_healed(
    proxy: FaultProxy, line: socket.socket
) -> None:
    port = proxy.port
    proxy.refuse()
    with client_of(proxy) as client:
        with pytest.raises(ConnectionError, match="refused"):
            client.ping()
        assert ask(line, b"PING\r\n") == b"+PONG\r\n"

        proxy.heal()

        assert client.ping()
    assert proxy.port == port


def test_connections_that_meet_a_refusal_are_closed(proxy: FaultProxy) -> None:
    """Python would complain about an open one in whatever test collects it later."""
    over = threading.Event()

    def connect() -> None:
        while not over.wait(0.001):  # without a pause, they would starve the proxy's own threads
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", proxy.port), LONG_SECONDS).close()

    clients = [threading.Thread(target=connect) for _ in range(2)]
    for client in clients:
        client.start()
    try:
        for _ in range(20):
            proxy.refuse()
            proxy.heal()
    finally:  # or they would go on beside all later tests
        over.set()
        for client in clients:
            client.join()
    gc.collect()  # pytest fails the test for each warning


def test_nobody_else_gets_the_port_while_it_refuses(proxy: FaultProxy) -> None:
    proxy.refuse()

    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", proxy.port))


def test_a_delay_counts_in_both_directions(proxy: FaultProxy, client: Redis) -> None:
    def seconds() -> float:
        start = time.monotonic()
        client.ping()
        return time.monotonic() - start

    proxy.delay(50)
    slow = seconds()
    proxy.heal()

    assert slow >= 0.1
    assert min(seconds() for _ in range(10)) < 0.05


# --- Ends -----------------------------------------------------------------------------------------


def test_the_server_sees_that_the_client_has_gone(
    proxy: FaultProxy, client: Redis, server: Redis
) -> None:
    client_id = client.client_id()

    client.close()

    wait_until_closed(server, client_id)
    assert client.ping()


def test_the_client_sees_that_the_server_has_hung_up(
    line: socket.socket, client: Redis, server: Redis
) -> None:
    line_id = int(ask(line, b"CLIENT ID\r\n")[1:])

    server.client_kill_filter(_id=str(line_id))

    assert line.recv(1024) == b""
    assert client.ping()


def test_a_server_that_is_down_is_a_reset_line(tmp_path: Path) -> None:
    with (
        FaultProxy(tmp_path / "nobody") as proxy,
        client_of(proxy) as client,
        pytest.raises(ConnectionError),
    ):
        client.ping()


def test_a_unix_socket_is_reached_too(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener, FaultProxy(path) as proxy:
        listener.bind(str(path))
        listener.listen()
        with connection_to(proxy) as line:
            end, _ = listener.accept()
            with end:
                proxy.drop_replies(matching=b"question")
                line.sendall(b"question")
                assert end.recv(1024) == b"question"
                end.sendall(b"answer")
                assert end.recv(1024) == b""
            with pytest.raises(ConnectionResetError):
                line.recv(1024)


@pytest.mark.parametrize("fault", ["heal", "stall", "swallow", "hold_replies", "refuse"])
def test_closing_leaves_no_thread_and_no_socket(
    fault: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    threads, files = threading.active_count(), open_files()

    with FaultProxy(("127.0.0.1", port)) as proxy, connection_to(proxy) as line:
        ask(line, b"PING\r\n")
        getattr(proxy, fault)()
        line.sendall(b"PING\r\n")
        proxy.close()
        with pytest.raises(ConnectionResetError):
            read_all(line)

    assert (threading.active_count(), open_files()) == (threads, files)
    assert not caplog.records, "asyncio complains"
