"""Requests to providers: one attempt, one deadline, the whole answer or none."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from orders.payments import http_calls
from orders.payments.http_calls import call
from orders.payments.providers import ProviderUnavailable

pytestmark = pytest.mark.quick

Server = Callable[[socket.socket], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Server], str]]:
    """Call it with what a server does with its only connection; it returns the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = list[threading.Thread]()

    def start(answer: Server) -> str:
        def once() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    answer(connection)

        threads.append(threading.Thread(target=once))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/pay?sign=secret"

    yield start
    listener.close()
    for thread in threads:
        thread.join()


def says(text: bytes) -> Server:
    return lambda connection: connection.sendall(text)


def test_whole_answer_is_returned(serve: Callable[[Server], str]) -> None:
    text = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nX-Name: Value\r\n\r\nno"
    answer = call("GET", serve(says(text)), headers={})
    assert (answer.status, answer.headers["x-name"], answer.body) == (404, "Value", b"no")


def test_chunked_answer_is_returned(serve: Callable[[Server], str]) -> None:
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    assert call("POST", serve(says(text)), headers={}, body=b"x").body == b"hello"


def test_redirect_is_not_followed(serve: Callable[[Server], str]) -> None:
    text = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    assert call("GET", serve(says(text)), headers={}).status == 302


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000,
    ],
    ids=["nothing", "nonsense", "half", "half-chunk", "too-much"],
)
def test_anything_less_is_unavailable(serve: Callable[[Server], str], text: bytes) -> None:
    with pytest.raises(ProviderUnavailable) as failed:
        call("GET", serve(says(text)), headers={"Authorization": "secret"})
    assert "/v1/pay" in str(failed.value)
    assert "secret" not in str(failed.value)


def test_dripping_answer_ends_at_the_deadline(
    serve: Callable[[Server], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_calls, "CALL_S", 0.5)

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b"x")
            time.sleep(0.02)

    start = time.monotonic()
    with pytest.raises(ProviderUnavailable):
        call("GET", serve(drip), headers={})
    assert time.monotonic() - start < 15, "the whole answer takes 20 s"


def test_call_takes_at_most_five_seconds() -> None:
    assert http_calls.CALL_S < 5
    assert 2 * http_calls.CONNECT_S < http_calls.CALL_S


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "file:///etc/hostname", "ftp://127.0.0.1/", "", "http://", "http://["],
)
def test_address_that_cannot_be_reached_is_unavailable(url: str) -> None:
    with pytest.raises(ProviderUnavailable):
        call("POST", url, headers={}, body=b"{}")
