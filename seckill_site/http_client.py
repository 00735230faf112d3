"""Requests to servers of others: one attempt, one deadline for all of it, no redirect, no proxy.

Built on the public parts of ``httpcore``: its network backend lets a caller check the addresses of
a host, and the connection goes to one of those.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore

_RESOLVERS = ThreadPoolExecutor(16, thread_name_prefix="http-dns")
"""Threads of our own: an event loop would wait for its own ones before it ends."""


class NoAnswer(Exception):
    """No answer, half an answer, or too much of one. The request may have been carried out."""


class UnknownHost(NoAnswer):
    """The host has no address."""


@dataclass(frozen=True)
class HttpAnswer:
    """An answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Limits:
    """The limits of one request.

    ``within_s`` covers everything from the name to the last byte, ``connect_within_s`` the
    connection, and the handshake after it. A longer body than ``largest_bytes`` is an error, or is
    cut there if ``cut``.
    """

    within_s: float
    connect_within_s: float
    largest_bytes: int
    cut: bool = False


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host.

    :raises UnknownHost: there are none.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(
            _RESOLVERS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except (OSError, UnicodeError) as error:
        raise UnknownHost(f"{host} has no address") from error
    return list(dict.fromkeys(str(it[4][0]) for it in found))


Resolve = Callable[[str, int], Awaitable[list[str]]]


class _Network(httpcore.AsyncNetworkBackend):
    """Connections to the addresses that a resolver returned: a name is resolved once."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address in await self._resolve(host, port):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout=timeout, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


async def exchange(
    method: str,
    url: str,
    *,
    limits: Limits,
    headers: Mapping[str, str],
    body: bytes | None = None,
    resolve: Resolve = resolve,
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """Send one request and return the answer, whatever its status; raises what ``resolve`` raises.

    :raises NoAnswer: there was none within the limits.
    """
    try:
        async with (
            asyncio.timeout(limits.within_s),
            httpcore.AsyncConnectionPool(
                ssl_context=tls or _default_tls(), network_backend=_Network(resolve)
            ) as pool,
            pool.stream(
                method,
                url,
                headers=[("Accept-Encoding", "identity"), *headers.items()],
                content=body,
                extensions={"timeout": {"connect": limits.connect_within_s}},
            ) as response,
        ):
            content = await _read(response, limits)
            names = {name.decode().lower(): it.decode() for name, it in response.headers}
            return HttpAnswer(response.status, names, content)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {limits.within_s:g} s") from error
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
        OSError,
        ValueError,
    ) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error


def call(
    method: str, url: str, *, limits: Limits, headers: Mapping[str, str], body: bytes | None = None
) -> HttpAnswer:
    """Call ``exchange`` from a thread that has no event loop.

    :raises NoAnswer: there was none within the limits.
    """
    return asyncio.run(exchange(method, url, limits=limits, headers=headers, body=body))


async def _read(response: httpcore.Response, limits: Limits) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_stream():
        content += chunk
        if len(content) > limits.largest_bytes:
            if limits.cut:
                break
            raise ValueError(f"the answer has more than {limits.largest_bytes} bytes")
    return bytes(content[: limits.largest_bytes])


@cache
def _default_tls() -> ssl.SSLContext:
    return ssl.create_default_context()
