"""The load generator: packed requests over persistent connections, in a process of its own.

The requests are packed before anything is measured. The generator shares the cores with the server
that it measures, so it uses a fast event loop and reads only the status and the end of each answer.
If several requests are in flight on one connection, their answers come in the same order
(HTTP/1.1).
"""

import asyncio
import gc
import json
import math
import re
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, NamedTuple, cast

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
LONGEST_S = 300.0


class ConnectionBroken(Exception):
    """A connection ended before all answers came; the text says what was open and how it ended."""


class Answer(NamedTuple):
    """One request's answer; times are seconds of the monotonic clock."""

    number: int
    status: int
    at: float
    latency_s: float


@dataclass(frozen=True)
class Shot:
    """The requests to send: each once, or repeatedly until time is up."""

    port: int
    requests: Sequence[bytes]
    connections: int
    depth: int = 1
    seconds: float = math.inf
    again: bool = False


@dataclass(frozen=True)
class Hits:
    """The answers to a shot."""

    began_at: float
    answers: list[Answer]
    generator_cpu_s: float

    @property
    def ended_at(self) -> float:
        return max(answer.at for answer in self.answers)

    @property
    def rate(self) -> float:
        """Return answers per second."""
        return len(self.answers) / (self.ended_at - self.began_at)

    @property
    def generator_load(self) -> float:
        """Return the share of one core that the generator used: near 1, it was the limit."""
        return self.generator_cpu_s / (self.ended_at - self.began_at)

    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.answers)


def fire(shot: Shot) -> Hits:
    """Send a shot over connections opened beforehand; return when every answer has arrived."""
    gc.disable()
    try:
        return uvloop.run(_fire(shot))
    finally:
        gc.enable()
        gc.collect()


async def _fire(shot: Shot) -> Hits:
    loop = asyncio.get_running_loop()
    volley = _Volley(shot, loop.create_future())
    for _ in range(shot.connections):
        await loop.create_connection(lambda: _Connection(volley), "127.0.0.1", shot.port)
    cpu_s = time.process_time()
    began_at = volley.begin()
    async with asyncio.timeout(LONGEST_S):
        await volley.over
    hits = Hits(began_at, volley.answers, time.process_time() - cpu_s)
    for connection in volley.connections:
        connection.transport.close()
    return hits


class _Volley:
    """The shared state of the connections: the next requests and the answers."""

    def __init__(self, shot: Shot, over: asyncio.Future[None]) -> None:
        numbers = range(len(shot.requests))
        self.numbers = cycle(numbers) if shot.again else iter(numbers)
        self.shot = shot
        self.over = over
        self.until = math.inf
        self.connections: list[_Connection] = []
        self.answers: list[Answer] = []
        self.busy = 0

    def begin(self) -> float:
        began_at = time.monotonic()
        self.until = began_at + self.shot.seconds
        self.busy = len(self.connections)
        for connection in self.connections:
            connection.send(self.shot.depth)
        return began_at

    def next_numbers(self, count: int) -> list[int]:
        if time.monotonic() >= self.until:
            return []
        return list(islice(self.numbers, count))

    def finish_one(self) -> None:
        self.busy -= 1
        if not self.busy and not self.over.done():
            self.over.set_result(None)


class _Connection(asyncio.Protocol):
    def __init__(self, volley: _Volley) -> None:
        self.volley = volley
        self.sent: deque[tuple[int, float]] = deque()
        self.rest = b""
        self.transport: asyncio.Transport
        self.made_at = time.monotonic()
        self.answered = 0
        self.done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self.volley.connections.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done or self.volley.over.done():
            return  # a server may close an idle connection: no answer is lost
        now, volley = time.monotonic(), self.volley
        waited_s = now - self.sent[0][1] if self.sent else 0
        how = repr(error) if error else "the server closed it"
        text = (
            f"connection {volley.connections.index(self)}, {now - self.made_at:.3f} s old, "
            f"{self.answered} answered, {len(self.sent)} open for {waited_s:.3f} s, "
            f"read of the next answer: {self.rest[:200]!r}: {how}; "
            f"{len(volley.answers)} answers came, {volley.busy} connections were busy"
        )
        volley.over.set_exception(ConnectionBroken(text))

    def send(self, count: int) -> None:
        """Send the next requests, at most ``count``."""
        numbers = self.volley.next_numbers(count)
        if numbers:
            now = time.monotonic()
            self.sent.extend((number, now) for number in numbers)
            self.transport.write(b"".join([self.volley.shot.requests[it] for it in numbers]))
        elif not self.sent:
            self.done = True
            self.volley.finish_one()

    def data_received(self, data: bytes) -> None:
        data = self.rest + data if self.rest else data
        now, start, count = time.monotonic(), 0, 0
        while (end := end_of_answer(data, start)) is not None:
            number, sent_at = self.sent.popleft()
            status = int(data[start + 9 : start + 12])
            self.volley.answers.append(Answer(number, status, now, now - sent_at))
            start, count = end, count + 1
        self.rest = data[start:]
        self.answered += count
        if count:
            self.send(count)


def end_of_answer(data: bytes, start: int) -> int | None:
    """Return the end of the answer that starts there, or None if it is incomplete."""
    head = data.find(b"\r\n\r\n", start)
    if head < 0:
        return None
    length = _LENGTH.search(data, start, head)
    if length:
        end = head + 4 + int(length[1])
        return end if end <= len(data) else None
    last = data.find(_LAST_CHUNK, head + 2)
    return last + len(_LAST_CHUNK) if last >= 0 else None


# --- Packed requests ------------------------------------------------------------------------------


def packed(
    path: str, fields: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return a GET request, or with fields a POST request with a JSON body."""
    method, body = ("GET", "") if fields is None else ("POST", json.dumps(fields))
    lines = {"Host": "localhost", "Accept": "application/json", "Accept-Language": "en"}
    lines |= headers or {}
    if body:
        lines |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode()


EMPTY_REQUEST = packed("/bench/empty/")


def order_request(sale_id: int, token: str, *, attempt: int | None = None) -> bytes:
    """Return a buyer's order request, with the number of the attempt if given."""
    fields = {"token": token} if attempt is None else {"token": token, "attempt": attempt}
    return packed(f"/vouchers/{sale_id}/orders/", fields)


def receipt_request(sale_id: int, order_id: int, token: str) -> bytes:
    """Return a request for the receipt of an order."""
    return packed(f"/vouchers/{sale_id}/orders/{order_id}/", headers={"Purchase-Token": token})


def classic_order_request(sale_id: int, token: str) -> bytes:
    """Return an order request of the classic design."""
    return packed(f"/bench/classic/{sale_id}/orders/", {}, {"Authorization": token})
