"""Requests to servers of others: one attempt, one deadline for all of it, no redirect, no proxy.

Built on the public parts of ``httpcore``: its network backend lets a caller check the addresses of
a host, and the connection goes to one of those.
"""

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


@dataclass(frozen=True)
class HttpAnswer:
    """An answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host.

    :raises NoAnswer: there are none.
    """
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.run_in_executor(
            _RESOLVERS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except (OSError, UnicodeError) as error:
        raise NoAnswer(f"{host} has no address") from error
    return list(dict.fromkeys(str(it[4][0]) for it in addresses))


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


_usual_tls = cache(ssl.create_default_context)
"""Reads the system's certificates, once."""


async def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    within_s: float,
    connect_within_s: float,
    largest_bytes: int,
    cut: bool = False,
    resolve: Resolve = resolve,
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """Send one request and return the answer, whatever its status; raises what ``resolve`` raises.

    ``within_s`` covers everything from the name to the last byte, ``connect_within_s`` the
    connection to one address, and the handshake after it. A body longer than ``largest_bytes`` is
    an error, or is ``cut`` there.

    :raises NoAnswer: there was none within these limits.
    """
    try:
        async with (
            asyncio.timeout(within_s),
            httpcore.AsyncConnectionPool(
                ssl_context=tls or _usual_tls(), network_backend=_Network(resolve)
            ) as pool,
            pool.stream(
                method,
                url,
                headers=[("Accept-Encoding", "identity"), *headers.items()],
                content=body,
                extensions={"timeout": {"connect": connect_within_s}},
            ) as response,
        ):
            content = bytearray()
            async for chunk in response.aiter_stream():
                content += chunk
                if len(content) > largest_bytes and cut:
                    break
                if len(content) > largest_bytes:
                    raise ValueError(f"the answer has more than {largest_bytes} bytes")
            names = {name.decode().lower(): it.decode() for name, it in response.headers}
            return HttpAnswer(response.status, names, bytes(content[:largest_bytes]))
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {within_s:g} s") from error
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
        OSError,
        ValueError,
    ) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
