"""Django behind the front door: its WSGI application in the threads of the process.

A request gets a thread once its body is complete, and the thread is free again once the answer is:
a whole answer is handed over at once. Only a longer one keeps its thread while it is sent, at most
``MOST_STREAMS`` at a time, and loses it when its client goes away or stops reading.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from seckill_site.front_door.requests import Environ, Receive, Send
from seckill_site.front_door.threads import Busy, threads

WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Start = dict[str, Any]

WHOLE_BYTES = 1024 * 1024
"""An answer up to this size is complete before it is sent."""

MOST_STREAMS = 2
LONGEST_STALL_S = 10.0
"""A client that reads nothing of a stream for this long loses it."""


class _Aborted(Exception):
    """Nobody reads this stream any more."""


class DjangoThreads:
    """A WSGI application in threads, called from one event loop."""

    def __init__(self, application: WsgiApplication) -> None:
        """Call nothing yet."""
        self._application = application
        self.streams = 0

    async def answer(self, environ: Environ, receive: Receive, send: Send) -> None:
        """Let Django answer a request whose body is complete.

        :raises Busy: too many requests wait for a thread, or too many streams are being sent.
        """
        whole = await self._run(environ, _Stream(self, receive, send))
        if whole is not None:
            start, content = whole
            await send(start)
            is_head = environ["REQUEST_METHOD"] == "HEAD"
            await send({"type": "http.response.body", "body": b"" if is_head else content})

    async def ask(self, environ: Environ) -> tuple[Start, bytes]:
        """Return the whole answer to a request of our own.

        :raises Busy: too many requests wait for a thread.
        """
        return await threads().run(partial(self.whole_answer, environ))

    def whole_answer(self, environ: Environ) -> tuple[Start, bytes]:
        """Return the whole answer to a request of our own, in the calling thread."""
        whole = self._call(environ, None)
        assert whole is not None
        return whole

    async def _run(self, environ: Environ, stream: _Stream | None) -> tuple[Start, bytes] | None:
        return await threads().run(partial(self._call, environ, stream))

    def _call(self, environ: Environ, stream: _Stream | None) -> tuple[Start, bytes] | None:
        """Return the whole answer, or None after a stream; in a thread."""
        start: Start = {}

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            start.update(start_of(status, headers))

        environ.update(_WSGI, **{"wsgi.errors": sys.stderr})
        body = self._application(environ, start_response)
        try:
            chunks = iter(body)
            first, size = [], 0
            for chunk in chunks:
                first.append(chunk)
                size += len(chunk)
                if stream and size > WHOLE_BYTES and getattr(body, "streaming", True):
                    stream.run(start, chain([b"".join(first)], chunks))
                    return None
            return start, b"".join(first)
        except _Aborted:
            return None
        finally:
            close = getattr(body, "close", None)
            if close:
                close()  # Django's signals, which give the database connection back


_WSGI = {
    "wsgi.version": (1, 0),
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}


def start_of(status: str, headers: Iterable[tuple[str, str]]) -> Start:
    """Return the message that begins an ASGI answer."""
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": int(status[:3]), "headers": pairs}


class _Stream:
    """The way of a long answer from its thread to the client, chunk by chunk."""

    def __init__(self, threads: DjangoThreads, receive: Receive, send: Send) -> None:
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._send = send
        self._counted = False

    def run(self, start: Start, chunks: Iterator[bytes]) -> None:
        """Send a long answer, in its thread.

        :raises Busy: enough streams are being sent already; nothing of this one was.
        :raises _Aborted: the client has gone, or reads no more.
        """
        gone = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        try:
            self._await(self._begin(start))
            for chunk in chunks:
                if gone.done():
                    raise _Aborted
                if chunk:
                    self._await(self._put(chunk, more=True))
            self._await(self._put(b"", more=False))
        finally:
            gone.cancel()
            self._loop.call_soon_threadsafe(self._end)

    async def _begin(self, start: Start) -> None:
        if self._threads.streams >= MOST_STREAMS:
            raise Busy
        self._threads.streams += 1
        self._counted = True
        await self._send(start)

    async def _put(self, chunk: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def _watch(self) -> None:
        """Return once the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _end(self) -> None:
        if self._counted:
            self._threads.streams -= 1

    def _await(self, step: Coroutine[Any, Any, None]) -> None:
        limited = asyncio.wait_for(step, LONGEST_STALL_S)
        try:
            asyncio.run_coroutine_threadsafe(limited, self._loop).result()
        except Busy:
            raise
        except Exception as error:  # whatever a server raises when its client has gone
            raise _Aborted from error
