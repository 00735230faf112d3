"""An HTTP client for crowds: prepared requests over many persistent connections.

All connections are opened before the first request, so that only the server distributes them.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

NO_ANSWER = 0
"""The status of a request whose connection broke or timed out: its outcome is unknown."""

DEFAULT_PORTS = {"http": 80, "https": 443}

_BROKEN = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)
"""Errors of a connection that breaks, takes too long, or does not speak HTTP."""


class BadAddress(Exception):
    """Not the address of a web server: http:// or https://, a host, perhaps a port."""


@dataclass(frozen=True)
class Address:
    """The address of a web server, and the host name to request."""

    host: str
    port: int
    tls: bool
    name: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL.

        A server behind a proxy may not know its own address. Requests then name the site's host.

        :raises BadAddress: it is not the address of a web server.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise BadAddress(url) from error
        if parts.scheme not in DEFAULT_PORTS or not host or not url.isprintable() or " " in url:
            raise BadAddress(url)
        own = parts.netloc.rpartition("@")[2]
        known = validate_host(split_domain_port(own)[0], settings.ALLOWED_HOSTS)
        name = own if known else urlsplit(settings.SECKILL_SITE_URL).netloc
        return cls(
            host=host,
            port=port or DEFAULT_PORTS[parts.scheme],
            tls=parts.scheme == "https",
            name=name,
            prefix=parts.path.rstrip("/"),
        )

    @property
    def is_local(self) -> bool:
        """Whether this machine serves it to itself."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def request(
        self,
        method: str,
        path: str,
        content: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the bytes of a request, with a JSON body if there is content."""
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {self.name}"]
        lines += ["Accept: application/json", "User-Agent: seckill-rehearsal"]
        if settings.HTTPS_ONLY and not self.tls:
            lines.append("X-Forwarded-Proto: https")  # as the proxy would set it
        body = b"" if content is None else json.dumps(content).encode()
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Response:
    """The answer to a request. ``body`` is parsed if it is JSON, else text."""

    status: int
    headers: Mapping[str, str]
    body: Any
    seconds: float


def send_all(
    requests: Sequence[bytes],
    *,
    address: Address,
    connections: int,
    timeout_s: float,
    for_s: float = math.inf,
) -> dict[int, Response]:
    """Send requests until time is up; return the responses by request number.

    They are sent in order, each over the first free connection.
    """
    opened = [_Connection(address, timeout_s) for _ in range(min(connections, len(requests)))]
    return asyncio.run(_send_all(requests, opened, for_s))


async def _send_all(
    requests: Sequence[bytes], connections: Sequence[_Connection], for_s: float
) -> dict[int, Response]:
    await asyncio.gather(*(connection.try_to_open() for connection in connections))
    until = time.monotonic() + for_s
    todo = iter(enumerate(requests))
    responses: dict[int, Response] = {}

    async def work_on(connection: _Connection) -> None:
        while time.monotonic() < until and (item := next(todo, None)):
            number, request = item
            responses[number] = await connection.send(request)
        connection.close()

    async with asyncio.TaskGroup() as tasks:
        for connection in connections:
            tasks.create_task(work_on(connection))
    return responses


class _Connection:
    """A persistent connection, reopened after it breaks."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def try_to_open(self) -> None:
        """Open the connection ahead of its first request, which tries again if this fails."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self._streams = await self._open()
        except OSError:
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = ssl.create_default_context() if self._address.tls else None
        return await asyncio.open_connection(self._address.host, self._address.port, ssl=tls)

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def send(self, request: bytes) -> Response:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                status, headers, body = await self._exchange(request)
        except _BROKEN as error:
            self.close()
            status, headers, body = NO_ANSWER, {}, repr(error)
        return Response(status, headers, body, time.monotonic() - started)

    async def _exchange(self, request: bytes) -> tuple[int, dict[str, str], Any]:
        if self._streams is None:
            self._streams = await self._open()
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        body = await _read_body(reader, headers)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(first.split()[1]), headers, _parsed(body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
