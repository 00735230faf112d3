"""A crowd of buyers: many prepared requests over many kept connections, as good as at once.

All connections are open before the first byte is sent, so that nothing but the server spreads them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

NO_ANSWER = 0
"""The status of a request whose connection broke or whose time ran out: its outcome is unknown."""


@dataclass(frozen=True)
class Answer:
    """What a request got; ``body`` is parsed where it is JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]
    seconds: float


def post(path: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a POST request with a JSON body."""
    body = json.dumps(fields).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += ["Accept: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def fire(
    requests: Sequence[bytes], *, url: str, connections: int = 100, timeout_seconds: float = 30
) -> list[Answer]:
    """Send all requests to a server and return their answers in the same order.

    Connection number i sends the requests i, i + connections, … one after the other.
    """
    crowd = _Crowd(requests, url=url, timeout_seconds=timeout_seconds)
    # In a thread of its own, because a browser test leaves an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, crowd.fire(min(connections, len(requests)))).result()


class _Crowd:
    def __init__(self, requests: Sequence[bytes], *, url: str, timeout_seconds: float) -> None:
        address = urlsplit(url)
        self.address = (address.hostname, address.port)
        self.requests = requests
        self.timeout_seconds = timeout_seconds
        self.answers: list[Answer] = [Answer(NO_ANSWER, "not sent", {}, 0)] * len(requests)

    async def fire(self, connections: int) -> list[Answer]:
        opened = [await self._connect() for _ in range(connections)]
        async with asyncio.TaskGroup() as tasks:
            for first, streams in enumerate(opened):
                numbers = range(first, len(self.requests), connections)
                tasks.create_task(self._walk(numbers, streams))
        return self.answers

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def _walk(
        self,
        numbers: range,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None,
    ) -> None:
        """Send these requests one after the other, over a new connection where one broke."""
        for number in numbers:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    streams = streams or await self._connect()
                    status, headers, body = await self._exchange(self.requests[number], *streams)
            except (OSError, EOFError, TimeoutError) as error:
                status, headers, body = NO_ANSWER, {}, repr(error)
            self.answers[number] = Answer(status, body, headers, time.monotonic() - begun)
            if streams and (status == NO_ANSWER or headers.get("connection") == "close"):
                streams[1].close()
                streams = None
        if streams:
            streams[1].close()

    @staticmethod
    async def _exchange(
        request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, dict[str, str], Any]:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await _body(reader, headers)
        is_json = headers.get("content-type", "").startswith("application/json")
        return int(first.split()[1]), headers, json.loads(body) if is_json else body.decode()


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
