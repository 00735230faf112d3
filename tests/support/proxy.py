"""A TCP proxy between a client and a real server that breaks the line on demand.

::

    with FaultProxy(redis_server(settings.REDIS_URL)) as proxy:
        client = Redis.from_url(proxy.url(0), retry=Retry(NoBackoff(), 0))
        proxy.drop_replies(matching=b"EVALSHA")
        ...  # the client gets a ConnectionError, but the server has run the script
        proxy.wait_for_fault()
        proxy.heal()

It understands no protocol, only turns: a *request* is all that a client sends until the server says
something; what the server says first after it is the *answer*. Hence its limits:

- A client that sends the next request before it has its answer may lose an earlier answer instead.
- A long pipeline, answered before it has been sent to its end, counts as a few requests. Where its
  reply is dropped, it is still forwarded whole: until the client has been silent for QUIET_SECONDS.
- ``matching`` sees plain bytes, not TLS or compression, and also finds them in keys and values. It
  finds what TCP has torn apart. ``None`` is any request, the handshake of a new connection too.
- A server that is down looks like a connection that opens and is reset. ``refuse`` refuses.

All its state belongs to one thread with an event loop. What a test calls is run there and has
happened when the call returns; ``wait_for_fault`` waits for what the traffic has to bring about.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from redis.connection import parse_url

from tests.support.patience import GENEROUS_S

Upstream = tuple[str, int] | str | Path

HOST = "127.0.0.1"
BACKLOG = 1_024
CHUNK_BYTES = 65_536
CALL_SECONDS = GENEROUS_S
CLOSING_TURN_SECONDS = 0.1
QUIET_SECONDS = 0.03
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def redis_server(url: str) -> Upstream:
    """Return the address behind a ``redis://`` or ``unix://`` URL."""
    parts = parse_url(url)
    return parts.get("path") or (parts.get("host", "localhost"), parts.get("port", 6379))


class NoFaultError(AssertionError):
    """The traffic did not meet the fault in time."""


class FaultProxy:
    """Listens on a free port of 127.0.0.1, forwards to one server and injects faults.

    The faults can be combined; ``heal`` takes all of them back.
    """

    def __init__(self, upstream: Upstream, *, remember: bool = True) -> None:
        """Prepare for one server; ``remember=False`` saves the memory of ``forwarded_requests``."""
        self.port = 0
        self._upstream = upstream
        self._remember = remember
        self._faults = _Faults()
        self._links: dict[asyncio.Task[None], _Link | None] = {}
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._reservation = _reserve_port()
        self.port = self._reservation.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")
        self._thread.start()
        self._call(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Reset all connections, stop listening, end the thread; a second time does nothing."""
        if self._thread.is_alive():
            self._call(self._end)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_SECONDS)
            self._loop.close()
            self._reservation.close()

    def url(self, db: int = 0, *, like: str = "") -> str:
        """Return the proxy's address as the URL of a Redis database, for the user of another."""
        user, at, _ = urlsplit(like).netloc.rpartition("@")
        return f"redis://{user}{at}{HOST}:{self.port}/{db}"

    # --- Faults -----------------------------------------------------------------------------------

    def drop_replies(self, times: int | None = 1, matching: bytes | None = None) -> None:
        """Let the server carry out the next matching requests, then cut the line at its answer.

        The server has closed its side before the client sees the reset: nothing that it was sent is
        still under way. Upper and lower case are the same; ``times=None`` is until ``heal``.
        """
        self._call(self._set_trap, _Trap(_Effect.DROP, _pattern(matching), times))

    def hold_replies(self, times: int | None = 1, matching: bytes | None = None) -> None:
        """Let the server carry out the next matching requests, but keep its answers back.

        The line stays up, so that the client runs into its timeout. ``times=None`` is until
        ``release`` or ``heal``.
        """
        self._call(self._set_trap, _Trap(_Effect.HOLD, _pattern(matching), times))

    def release(self) -> None:
        """Hand over the answers that are held, late as they are, and hold no more."""
        self._call(self._release)

    def stall(self) -> None:
        """Let nothing pass, as if all packets were lost: connections open, but stay silent.

        What was sent meanwhile arrives after ``heal``, even from a client that has given up.
        """
        self._call(self._stall)

    def cut(self) -> None:
        """Reset the present connections on both sides; new ones work."""
        self._call(self._cut)

    def refuse(self) -> None:
        """Refuse new connections; the present ones live on unless ``cut`` follows."""
        self._call(self._refuse)

    def redirect(self, upstream: Upstream) -> None:
        """Lead new connections to another server, as DNS does; the present ones stay."""
        self._upstream = upstream

    def heal(self) -> None:
        """Take all faults back: pass on what is held or stalled, listen on the same port again."""
        self._call(self._heal)

    # --- What came of them ------------------------------------------------------------------------

    def wait_for_fault(self, seconds: float = GENEROUS_S, *, times: int = 1) -> None:
        """Wait until the traffic has met the fault injected last, so many times.

        That is a reply dropped or held, data or a connection stopped by a stall.
        ``cut`` and ``refuse`` are done when they return.

        :raises NoFaultError: it has not happened in time.
        """
        self._faults.wait(times, seconds)

    @property
    def dropped(self) -> int:
        """How many replies have been dropped since the start."""
        return self._faults.dropped

    def forwarded_requests(self, matching: bytes | None = None) -> int:
        """Count the requests with these bytes, in any case, sent to the server since the start."""
        if not self._remember:
            raise RuntimeError("this proxy remembers nothing: see its constructor")
        pattern = _pattern(matching)
        return sum(pattern in request.lower() for request in list(self._faults.forwarded))

    # --- In the thread of the loop ----------------------------------------------------------------

    def _call(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a coroutine function in the loop's thread and wait for its end."""
        if not self._thread.is_alive():
            raise RuntimeError("the proxy has been closed")
        asyncio.run_coroutine_threadsafe(function(*args), self._loop).result(CALL_SECONDS)

    async def _set_trap(self, trap: _Trap) -> None:
        self._faults.traps.append(trap)
        self._faults.restart_count()

    async def _release(self) -> None:
        self._faults.traps = [t for t in self._faults.traps if t.effect is not _Effect.HOLD]
        self._let_go(_Effect.HOLD)

    async def _stall(self) -> None:
        self._faults.flowing.clear()
        self._faults.restart_count()

    async def _cut(self) -> None:
        await self._reset(self._links)

    async def _refuse(self) -> None:
        if self._server:
            server, self._server = self._server, None
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
            # A closed server would drop, unclosed, what was accepted just now: give it its turn.
            await asyncio.sleep(0)
            server.close()

    async def _heal(self) -> None:
        self._faults.end()
        self._let_go(*_Effect)
        await self._listen()

    async def _listen(self) -> None:
        if not self._server:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, backlog=BACKLOG)

    async def _end(self) -> None:
        await self._refuse()
        # More than once: a connection accepted just now has its task only some turns later.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._links:
                task.cancel()
            await asyncio.wait(others, timeout=CLOSING_TURN_SECONDS)
        await self._loop.shutdown_default_executor()

    async def _reset(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        ended = [task for task in tasks if task.cancel()]
        if ended:
            await asyncio.wait(ended)

    def _let_go(self, *effects: _Effect) -> None:
        for link in filter(None, self._links.values()):
            link.let_go(effects)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client to the server until one of the three ends it: they or a fault."""
        task = asyncio.current_task()
        assert task
        self._links[task] = None
        try:
            # asyncio would log a cancelled task of a server as an error.
            with suppress(OSError, asyncio.CancelledError):
                async with _reset_at_end(writer):
                    await self._connect(task, _End(reader, writer))
        finally:
            del self._links[task]

    async def _connect(self, task: asyncio.Task[None], client: _End) -> None:
        await self._faults.passage()
        if isinstance(self._upstream, tuple):
            server = _End(*await asyncio.open_connection(*self._upstream))
        else:
            server = _End(*await asyncio.open_unix_connection(self._upstream))
        async with _reset_at_end(server.writer):
            link = _Link(self._faults, client, server, remember=self._remember)
            self._links[task] = link
            await link.relay()


class _Effect(enum.Enum):
    """What happens to an answer."""

    DROP = enum.auto()
    HOLD = enum.auto()


@dataclass
class _Trap:
    """Waits for requests whose answers shall be dropped or held."""

    effect: _Effect
    pattern: bytes
    times: int | None

    def springs(self, request: bytearray) -> bool:
        """Say whether it is one of these requests, and count it."""
        if self.times == 0 or self.pattern not in request.lower():
            return False
        if self.times is not None:
            self.times -= 1
        return True


class _Faults:
    """What is injected at the moment, and what has come of it."""

    def __init__(self) -> None:
        self.traps: list[_Trap] = []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.dropped = 0
        self.forwarded: list[bytearray] = []
        self._met = 0
        self._news = threading.Condition()

    def end(self) -> None:
        """Inject nothing any more."""
        self.traps = []
        self.flowing.set()
        self.restart_count()

    async def passage(self) -> None:
        """Wait as long as data is stalled."""
        if not self.flowing.is_set():
            self.count()
            await self.flowing.wait()

    def effect_on(self, request: bytearray) -> _Effect | None:
        """Return what shall happen to the answer of a request, which uses up one of the times."""
        return next((trap.effect for trap in self.traps if trap.springs(request)), None)

    def count(self) -> None:
        """Note that the traffic has met a fault."""
        with self._news:
            self._met += 1
            self._news.notify_all()

    def restart_count(self) -> None:
        """Count for another fault."""
        with self._news:
            self._met = 0

    def wait(self, times: int, seconds: float) -> None:
        """Wait in another thread for the count."""
        with self._news:
            if not self._news.wait_for(lambda: self._met >= times, seconds):
                raise NoFaultError(f"met {self._met} of {times} faults in {seconds} s")


class _End(NamedTuple):
    """One of the two connections of a link."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Link:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, faults: _Faults, client: _End, server: _End, *, remember: bool) -> None:
        self._faults = faults
        self._client = client
        self._server = server
        self._remember = remember
        self._request = bytearray()
        self._pieces = 0
        self._is_answered = True
        self._effect: _Effect | None = None
        self._released = asyncio.Event()

    async def relay(self) -> None:
        """Pass data in both directions until the server ends it or a reply is dropped."""
        self._requests = asyncio.create_task(self._pass_requests())
        try:
            await self._pass_answers()
        finally:
            self._requests.cancel()
            await asyncio.wait({self._requests})

    def let_go(self, effects: Iterable[_Effect]) -> None:
        """Leave the next answer alone, or the one that is held."""
        if self._effect is not None and self._effect in effects:
            self._effect = None
            self._released.set()

    async def _pass_requests(self) -> None:
        with suppress(OSError):
            while data := await self._next(self._client):
                self._note(data)
                self._server.writer.write(data)
                await self._server.writer.drain()
            # Not a close: the server has to read all of it, and may still answer.
            self._server.writer.write_eof()

    async def _pass_answers(self) -> None:
        while data := await self._next(self._server):
            self._is_answered = True
            if self._effect is _Effect.DROP:
                await self._drop()
                return
            if self._effect is _Effect.HOLD:
                self._faults.count()
                await self._released.wait()
            self._client.writer.write(data)
            await self._client.writer.drain()
        self._client.writer.close()
        await self._client.writer.wait_closed()

    async def _next(self, end: _End) -> bytes:
        """Return what came next and may pass; nothing at the end, which may be a reset."""
        data = b""
        with suppress(OSError):
            data = await end.reader.read(CHUNK_BYTES)
        await self._faults.passage()
        return data

    def _note(self, data: bytes) -> None:
        """Add to the request, or begin the next, and see what shall happen to its answer."""
        if self._is_answered:
            self._is_answered = False
            self._request = bytearray()
            if self._remember:
                self._faults.forwarded.append(self._request)
        self._request += data
        self._pieces += 1
        if self._effect is None:
            self._effect = self._faults.effect_on(self._request)
            self._released.clear()

    async def _drop(self) -> None:
        await self._silence()
        self._requests.cancel()
        self._server.writer.write_eof()
        with suppress(OSError):
            while await self._server.reader.read(CHUNK_BYTES):
                pass
        await _reset(self._client.writer)
        self._faults.dropped += 1
        self._faults.count()

    async def _silence(self) -> None:
        """Wait until the client sends nothing more."""
        before = -1
        while before != self._pieces:
            before = self._pieces
            await asyncio.sleep(QUIET_SECONDS)


def _pattern(matching: bytes | None) -> bytes:
    return (matching or b"").lower()


def _reserve_port() -> socket.socket:
    """Take a free port for good, so that nobody gets it while the proxy does not listen there."""
    reservation = socket.socket()
    # With this on both sockets, Linux lets one listen where the other is only bound.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, 0))
    return reservation


@asynccontextmanager
async def _reset_at_end(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Reset a connection at the end, unless it has been closed before."""
    try:
        yield
    finally:
        await _reset(writer)


async def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # it is closed already
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
    with suppress(OSError):  # it was lost
        await writer.wait_closed()
