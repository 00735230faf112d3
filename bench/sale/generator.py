"""The load generator: packed requests over persistent connections, in a process of its own.

The requests are packed before anything is measured. The generator shares the cores with the server
that it measures, so it uses a fast event loop and reads only the status and the end of each answer.
If several requests are in flight on one connection, their answers come in the same order
(HTTP/1.1).

A :class:`Shot` sends a list of requests as fast as their answers come. A :class:`Crowd` has
visitors instead, whose requests are due at their own times and may depend on earlier answers.
"""

import asyncio
import gc
import json
import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

import uvloop

from lab.verdict import percentile

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
LONGEST_S = 300.0


class ConnectionBroken(Exception):
    """A connection ended before all answers came; the text says what was open and how it ended."""


class Answer(NamedTuple):
    """The answer to a shot's request of this number, or to a request of the visitor of this number.

    Times are seconds of the monotonic clock.
    """

    number: int
    status: int
    at: float
    latency_s: float
    name: str = ""


@dataclass(frozen=True)
class Shot:
    """The requests to send: each once, or repeatedly until time is up."""

    port: int
    requests: Sequence[bytes]
    connections: int
    depth: int = 1
    seconds: float = math.inf
    again: bool = False


class Step(NamedTuple):
    """The next request of a visitor, due this many seconds after the start, or at once if later."""

    name: str
    request: bytes
    due_s: float = 0.0


class Reply(NamedTuple):
    """The answer to a step; ``at_s`` is seconds after the start."""

    status: int
    body: bytes
    at_s: float
    head: bytes = b""


Visit = Generator[Step, Reply, None]


@dataclass(frozen=True)
class Crowd:
    """Visitors, made in the generator's process; latency counts from when a request is due."""

    port: int
    visits: Callable[[], Iterable[Visit]]
    connections: int


@dataclass(frozen=True)
class Hits:
    """The answers to a shot or to a crowd."""

    began_at: float
    answers: list[Answer]
    generator_cpu_s: float

    @property
    def ended_at(self) -> float:
        return max(answer.at for answer in self.answers)

    @property
    def rate(self) -> float:
        return len(self.answers) / (self.ended_at - self.began_at)

    @property
    def generator_load(self) -> float:
        """Return the share of one core that the generator used: near 1, it was the limit."""
        return self.generator_cpu_s / (self.ended_at - self.began_at)

    def latency_ms(self, percent: int) -> float:
        """Return the latency that this percentage of the answers does not exceed."""
        return percentile([answer.latency_s for answer in self.answers], percent) * 1000

    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.answers)

    def of(self, name: str) -> "Hits":
        """Return the answers to the steps of this name alone."""
        return replace(self, answers=[it for it in self.answers if it.name == name])


def fire(shot: Shot | Crowd) -> Hits:
    """Send requests over connections opened beforehand; return when every answer has arrived."""
    gc.disable()
    try:
        return uvloop.run(_fire(shot))
    finally:
        gc.enable()
        gc.collect()


async def _fire(shot: Shot | Crowd) -> Hits:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    volley: _Visits | _Volley
    volley = _Visits(shot, over) if isinstance(shot, Crowd) else _Volley(shot, over)
    try:
        for _ in range(shot.connections):
            await loop.create_connection(lambda: _Connection(volley), "127.0.0.1", shot.port)
        cpu_s = time.process_time()
        began_at = volley.begin()
        async with asyncio.timeout(LONGEST_S):
            await over
        return Hits(began_at, volley.answers, time.process_time() - cpu_s)
    finally:
        for connection in volley.connections:
            connection.transport.close()


class _Sent(NamedTuple):
    """A request and the time from which its latency counts."""

    number: int
    request: bytes
    since: float
    name: str = ""


class _Source:
    """What connections share: the answers, and what those who wait for them do with one.

    ``begin`` starts sending and returns the time. ``take`` returns the next requests, at most
    ``count``. ``rest`` leaves a connection alone that has nothing to send and to wait for.
    """

    def __init__(self, over: asyncio.Future[None]) -> None:
        self.over = over
        self.connections: list[_Connection] = []
        self.answers: list[Answer] = []
        self.busy = 0

    def put(self, sent: _Sent, now: float, answer: bytes) -> None:
        status, latency_s = int(answer[9:12]), now - sent.since
        self.answers.append(Answer(sent.number, status, now, latency_s, sent.name))

    def finish_one(self) -> None:
        self.busy -= 1
        if not self.busy and not self.over.done():
            self.over.set_result(None)


class _Volley(_Source):
    """A shot: as long as there are requests, each connection sends one for each answer."""

    def __init__(self, shot: Shot, over: asyncio.Future[None]) -> None:
        super().__init__(over)
        numbers = range(len(shot.requests))
        self.numbers = cycle(numbers) if shot.again else iter(numbers)
        self.shot = shot
        self.until = math.inf

    def begin(self) -> float:
        began_at = time.monotonic()
        self.until = began_at + self.shot.seconds
        self.busy = len(self.connections)
        for connection in self.connections:
            connection.send(self.shot.depth)
        return began_at

    def take(self, count: int) -> list[_Sent]:
        now, requests = time.monotonic(), self.shot.requests
        if now >= self.until:
            return []
        return [_Sent(it, requests[it], now) for it in islice(self.numbers, count)]

    def rest(self, connection: "_Connection") -> None:
        connection.done = True
        self.finish_one()


class _Visits(_Source):
    """A crowd: a request that is due takes the connection that has been idle for longest."""

    def __init__(self, crowd: Crowd, over: asyncio.Future[None]) -> None:
        super().__init__(over)
        self.loop = asyncio.get_running_loop()
        self.visits = list(crowd.visits())
        self.waiting: deque[_Sent] = deque()
        self.idle: deque[_Connection] = deque()
        self.began_at = 0.0

    def begin(self) -> float:
        self.began_at = time.monotonic()
        self.busy = len(self.visits)
        self.idle.extend(self.connections)
        for number in range(len(self.visits)):
            self.go_on(number, None)
        return self.began_at

    def take(self, count: int) -> list[_Sent]:
        return [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]

    def rest(self, connection: "_Connection") -> None:
        self.idle.append(connection)

    def put(self, sent: _Sent, now: float, answer: bytes) -> None:
        super().put(sent, now, answer)
        head, _, body = answer.partition(b"\r\n\r\n")
        self.go_on(sent.number, Reply(self.answers[-1].status, body, now - self.began_at, head))

    def go_on(self, number: int, reply: Reply | None) -> None:
        """Let a visitor say what comes next."""
        try:
            # Only the first call, which starts the visit, has no reply.
            step = self.visits[number].send(cast(Reply, reply))
        except StopIteration:
            self.finish_one()
        except Exception as error:
            if not self.over.done():
                self.over.set_exception(error)
        else:
            now = time.monotonic()
            since = max(now, self.began_at + step.due_s)
            due = _Sent(number, step.request, since, step.name)
            if since > now:
                self.loop.call_later(since - now, self.send, due)
            else:
                self.send(due)

    def send(self, due: _Sent) -> None:
        self.waiting.append(due)
        if self.idle:
            self.idle.popleft().send(1)


class _Connection(asyncio.Protocol):
    def __init__(self, source: _Volley | _Visits) -> None:
        self.source = source
        self.sent: deque[_Sent] = deque()
        self.rest = b""
        self.transport: asyncio.Transport
        self.made_at = time.monotonic()
        self.answered = 0
        self.done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self.source.connections.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done or self.source.over.done():
            return  # a server may close an idle connection: no answer is lost
        now, source = time.monotonic(), self.source
        waited_s = now - self.sent[0].since if self.sent else 0
        how = repr(error) if error else "the server closed it"
        text = (
            f"connection {source.connections.index(self)}, {now - self.made_at:.3f} s old, "
            f"{self.answered} answered, {len(self.sent)} open for {waited_s:.3f} s, "
            f"read of the next answer: {self.rest[:200]!r}: {how}; "
            f"{len(source.answers)} answers came, {source.busy} connections were busy"
        )
        source.over.set_exception(ConnectionBroken(text))

    def send(self, count: int) -> None:
        """Send the next requests, at most ``count``."""
        taken = self.source.take(count)
        if taken:
            self.sent.extend(taken)
            self.transport.write(b"".join([it.request for it in taken]))
        elif not self.sent:
            self.source.rest(self)

    def data_received(self, data: bytes) -> None:
        data = self.rest + data if self.rest else data
        now, start, count = time.monotonic(), 0, 0
        while (end := end_of_answer(data, start)) is not None:
            self.source.put(self.sent.popleft(), now, data[start:end])
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
    lines = {"Accept-Language": "en", **(headers or {})}
    if fields is None:
        return _packed("GET", path, lines)
    lines["Content-Type"] = "application/json"
    return _packed("POST", path, lines, json.dumps(fields))


def form_request(path: str, fields: Mapping[str, str]) -> bytes:
    """Return a form's POST, with a CSRF token of its own."""
    token = "c" * 32
    body = urlencode({**fields, "csrfmiddlewaretoken": token})
    content_type = "application/x-www-form-urlencoded"
    lines = {"Cookie": f"csrftoken={token}", "Content-Type": content_type}
    return _packed("POST", path, lines, body)


def _packed(method: str, path: str, headers: Mapping[str, str], body: str = "") -> bytes:
    lines = {"Host": "localhost", "Accept": "application/json", **headers}
    if body:
        lines["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode()


EMPTY_REQUEST = packed("/bench/empty/")


BROWSER = {"Accept": "text/html", "Accept-Encoding": "gzip"}
LIST_REQUEST = packed("/", headers=BROWSER)


def page_request(sale_id: int, cookie: str = "") -> bytes:
    """Return a browser's request for the purchase page."""
    headers = BROWSER | ({"Cookie": cookie} if cookie else {})
    return packed(f"/vouchers/{sale_id}/", headers=headers)


def live_request(sale_id: int) -> bytes:
    return packed(f"/vouchers/{sale_id}/live/")


def me_request(sale_id: int, cookie: str) -> bytes:
    """Return a signed-in buyer's request for what they have of a sale, with a purchase token."""
    return packed(f"/me/?sale={sale_id}", headers={"Cookie": cookie})


def room_request(sale_id: int, cookie: str) -> bytes:
    return packed(f"/vouchers/{sale_id}/room/", headers={"Cookie": cookie})


def order_request(sale_id: int, token: str, *, attempt: int | None = None) -> bytes:
    """Return a buyer's order request, with the number of the attempt if given."""
    fields = {"token": token} if attempt is None else {"token": token, "attempt": attempt}
    return packed(f"/vouchers/{sale_id}/orders/", fields)


def receipt_request(sale_id: int, order_id: int, token: str) -> bytes:
    return packed(f"/vouchers/{sale_id}/orders/{order_id}/", headers={"Purchase-Token": token})


def classic_order_request(sale_id: int, token: str) -> bytes:
    return packed(f"/bench/classic/{sale_id}/orders/", {}, {"Authorization": token})
