"""Sending one message over HTTP to an address of somebody else's choice."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, NamedTuple

import httpcore
from httpcore import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream

from api.webhooks.addresses import ForbiddenAddress, UnknownHost, check_url, checked_addresses

TIMEOUT_S = 3.0
"""For everything together: name, connection, TLS, request and answer."""

LARGEST_ANSWER_BYTES = 4_096
SHOWN_CHARACTERS = 500


class Attempt(NamedTuple):
    """One attempt to send a message; ``status`` is None if there was no answer."""

    status: int | None
    answer: str
    error: str
    took_ms: int

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class _CheckedNetwork(AsyncNetworkBackend):
    """Connections to addresses that were checked, not to names that are resolved again."""

    def __init__(self) -> None:
        self._network = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address in await checked_addresses(host, port):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout=timeout, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


async def post(
    url: str, *, headers: Mapping[str, str], body: bytes, tls: ssl.SSLContext | None = None
) -> Attempt:
    """Send a message; follow no redirect, and read little of the answer."""
    started = monotonic()
    status: int | None = None
    answer, error = b"", ""
    try:
        check_url(url)
        async with asyncio.timeout(TIMEOUT_S):
            status, answer = await _exchange(url, headers, body, tls)
    except TimeoutError:
        error = f"no answer within {TIMEOUT_S:g} s"
    except (ForbiddenAddress, UnknownHost) as failure:
        error = str(failure)
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
        OSError,
        ValueError,
    ) as failure:
        error = f"{type(failure).__name__}: {failure}"
    text = answer.decode("utf-8", "replace").replace("\0", "�")
    return Attempt(status, text[:SHOWN_CHARACTERS], error[:200], _ms_since(started))


async def _exchange(
    url: str, headers: Mapping[str, str], body: bytes, tls: ssl.SSLContext | None
) -> tuple[int, bytes]:
    async with (
        httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=_CheckedNetwork()) as pool,
        pool.stream("POST", url, headers=list(headers.items()), content=body) as response,
    ):
        answer = b""
        async for chunk in response.aiter_stream():
            answer += chunk
            if len(answer) >= LARGEST_ANSWER_BYTES:
                break
        return response.status, answer[:LARGEST_ANSWER_BYTES]


def _ms_since(started: float) -> int:
    return round((monotonic() - started) * 1000)
