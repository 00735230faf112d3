"""The crowd of a rehearsal: order requests over many kept connections to the running web server.

It knows nothing of sales or rows. What a request gets is judged as the purchase page judges it: no
answer, a busy shop and a gateway that gave up all mean that the outcome is unknown, and that the
same token may be sent again.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from vouchers.inventory.request_stats import ACCEPTED

REQUEST_S = 5.0
"""So long the page waits for an answer, too."""

UNANSWERED = "unanswered"
BUSY = frozenset({429, 502, 503, 504})
"""The statuses that tell nothing: the page sends the same token again."""

LONGEST_CODE = 32
DEFAULT_PORTS = {"http": 80, "https": 443}

_BROKEN = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)
"""What a connection may raise that breaks, takes too long, or does not speak HTTP."""


class BadAddress(Exception):
    """The address is not one of a web server: http:// or https://, a host, perhaps a port."""


class NoWebServer(Exception):
    """Nobody at the address answers as a web server of this shop does."""


@dataclass(frozen=True)
class Address:
    """Where the web server is, and under which name it is to be asked."""

    host: str
    port: int
    tls: bool
    name: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL.

        A server that is asked past its proxy may not know its own address: then it is asked under
        the site's name.

        :raises BadAddress: it is none of a web server.
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

    def head(self, method: str, path: str) -> list[str]:
        """Return the first lines of a request."""
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {self.name}"]
        lines += ["Accept: application/json", "User-Agent: seckill-rehearsal"]
        if settings.HTTPS_ONLY and not self.tls:
            lines.append("X-Forwarded-Proto: https")  # what the proxy would say
        return lines


@dataclass(frozen=True)
class OrderRequest:
    """One press of the button: which one, and the token that goes with it."""

    click: int
    token: str


@dataclass(frozen=True)
class Answer:
    """What a request got; ``ms`` is None where nothing came.

    ``code`` is *accepted*, the code of the refusal, or the bare status of what is not the shop's.
    """

    click: int
    code: str
    is_known: bool
    order_id: int | None = None
    ms: int | None = None
    retry_after_s: int = 0


@dataclass(frozen=True)
class _Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        """The JSON object of the body; empty where it is none."""
        try:
            content = json.loads(self.body)
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


def check_web(*, url: str, path: str) -> None:
    """Ask a web server whether it is alive.

    :raises BadAddress: the address is not one of a web server.
    :raises NoWebServer: nobody answers there, or not so.
    """
    address = Address.of(url)
    try:
        response = asyncio.run(_ask_once(address, path))
    except _BROKEN as error:
        raise NoWebServer(str(error) or type(error).__name__) from error
    if response.status != 200:
        raise NoWebServer(f"{path} is answered with {response.status}")


async def _ask_once(address: Address, path: str) -> _Response:
    request = "\r\n".join([*address.head("GET", path), "", ""]).encode()
    async with asyncio.timeout(REQUEST_S):
        connection = _Connection(address)
        try:
            return await connection.exchange(request)
        finally:
            connection.close()


def fire(
    *, url: str, path: str, requests: Iterable[OrderRequest], connections: int, for_s: float
) -> list[Answer]:
    """Send requests until the time is over, and return the answers of those that were sent.

    They are sent in their order, each over the first connection that is free; all connections are
    opened before the first of them.

    :raises BadAddress: the address is not one of a web server.
    """
    return asyncio.run(_Crowd(Address.of(url), path, requests).fire(connections, for_s))


class _Crowd:
    def __init__(self, address: Address, path: str, requests: Iterable[OrderRequest]) -> None:
        self.address = address
        self.head = address.head("POST", path)
        self.requests: Iterator[OrderRequest] = iter(requests)
        self.answers: list[Answer] = []

    async def fire(self, connections: int, for_s: float) -> list[Answer]:
        opened = [_Connection(self.address) for _ in range(connections)]
        await asyncio.gather(*(connection.try_to_open() for connection in opened))
        until = time.monotonic() + for_s
        async with asyncio.TaskGroup() as tasks:
            for connection in opened:
                tasks.create_task(self._walk(connection, until))
        return self.answers

    async def _walk(self, connection: _Connection, until: float) -> None:
        """Send one request after the other, as long as there are any and time is left."""
        while time.monotonic() < until and (request := next(self.requests, None)):
            self.answers.append(await self._send(connection, request))
        connection.close()

    async def _send(self, connection: _Connection, request: OrderRequest) -> Answer:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(REQUEST_S):
                response = await connection.exchange(self._bytes(request))
        except _BROKEN:
            connection.close()
            return Answer(request.click, UNANSWERED, is_known=False)
        return judge(request.click, response, ms=round((time.monotonic() - begun) * 1000))

    def _bytes(self, request: OrderRequest) -> bytes:
        # Not as a first attempt: a click is sent again where its answer, or our process, was lost,
        # and who has won already must be asked of the ledger.
        body = json.dumps({"token": request.token}).encode()
        lines = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*self.head, *lines, "", ""]).encode() + body


def judge(click: int, response: _Response, *, ms: int) -> Answer:
    """Return what a response tells the buyer."""
    content = response.content
    if response.status == 202:
        order_id = str(content.get("order_id", ""))
        accepted = int(order_id) if order_id.isdecimal() else None
        return Answer(click, ACCEPTED, is_known=True, order_id=accepted, ms=ms)
    retry_after = response.headers.get("retry-after", "")
    return Answer(
        click,
        str(content.get("code") or response.status)[:LONGEST_CODE],
        is_known=response.status not in BUSY,
        ms=ms,
        retry_after_s=int(retry_after) if retry_after.isdecimal() else 0,
    )


class _Connection:
    """A connection that is kept, and opened again where it broke."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def try_to_open(self) -> None:
        """Open it ahead of the first request; one that cannot be is that request's own trouble."""
        try:
            async with asyncio.timeout(REQUEST_S):
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

    async def exchange(self, request: bytes) -> _Response:
        """Send a request and return its response.

        :raises OSError: also asyncio's other errors: nobody knows whether it arrived.
        """
        if self._streams is None:
            self._streams = await self._open()
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        headers = dict(_pairs(lines))
        response = _Response(int(first.split()[1]), headers, await _body(reader, headers))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return response


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(":")
        yield name.strip().lower(), value.strip()


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
