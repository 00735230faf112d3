"""Django behind the front door: its WSGI application in the threads of the process.

A request gets a thread once its body is complete, and the thread is free again once the answer is:
a whole answer is handed over at once. Only a longer one keeps its thread while it is sent, at most
``MOST_STREAMS`` at a time, and loses it when its client goes away or stops reading.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from threading import Semaphore
from typing import Any

from django.conf import settings

from seckill_site.front_door.requests import Environ, Receive, Send
from seckill_site.front_door.threads import Busy, threads

WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Message = dict[str, Any]

WHOLE_BYTES = 1024 * 1024
"""An answer up to this size is complete before it is sent."""

MOST_STREAMS = 2
LONGEST_STALL_S = 10.0
"""A client that reads nothing of a stream for this long loses it."""

_WSGI = {
    "wsgi.version": (1, 0),
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}


class DjangoThreads:
    """A WSGI application in threads, called from one event loop."""

    def __init__(self, application: WsgiApplication) -> None:
        """Take the application, which each request will call in a thread."""
        self._application = application
        # One thread at least is left for everybody else.
        most = min(MOST_STREAMS, settings.SECKILL_DJANGO_THREADS - 1)
        self._streams = Semaphore(max(1, most))

    async def answer(self, environ: Environ, receive: Receive, send: Send) -> None:
        """Let Django answer a request whose body is complete.

        :raises Busy: too many requests wait for a thread, or too many streams are being sent.
        """
        client = _Client(receive, send)
        whole = await threads().run(partial(self._call, environ, client))
        if whole is not None:
            start, content = whole
            await send(start)
            await send(_part(b"" if environ["REQUEST_METHOD"] == "HEAD" else content))

    async def ask(self, environ: Environ) -> tuple[Message, bytes]:
        """Return the whole answer to a request of our own.

        :raises Busy: too many requests wait for a thread.
        """
        return await threads().run(partial(self.whole_answer, environ))

    def whole_answer(self, environ: Environ) -> tuple[Message, bytes]:
        """Return the whole answer to a request of our own, in the calling thread."""
        whole = self._call(environ, None)
        assert whole is not None
        return whole

    def _call(self, environ: Environ, client: _Client | None) -> tuple[Message, bytes] | None:
        """Return the whole answer, or None after a stream; in a thread."""
        start: Message = {"type": "http.response.start"}

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            start["status"] = int(status[:3])
            start["headers"] = [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
            ]

        environ.update(_WSGI, **{"wsgi.errors": sys.stderr})
        body = self._application(environ, start_response)
        try:
            chunks = iter(body)
            first, size = [], 0
            for chunk in chunks:
                first.append(chunk)
                size += len(chunk)
                if client and size > WHOLE_BYTES and getattr(body, "streaming", True):
                    self._stream(client, start, chain([b"".join(first)], chunks))
                    return None
            return start, b"".join(first)
        finally:
            close = getattr(body, "close", None)
            if close:
                close()  # Django's signals, which give the database connection back

    def _stream(self, client: _Client, start: Message, chunks: Iterable[bytes]) -> None:
        if not self._streams.acquire(blocking=False):
            raise Busy
        parts = (_part(chunk, more=True) for chunk in chunks if chunk)
        try:
            client.give(chain([start], parts, [_part(b"")]))
        finally:
            self._streams.release()


def _part(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


class _Client:
    """The client of an answer, for the answer's thread."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._send = send

    def give(self, messages: Iterable[Message]) -> None:
        """Send messages one by one, until the client goes away or reads no more."""
        gone = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        try:
            for message in messages:
                if gone.done() or not self._takes(message):
                    return
        finally:
            gone.cancel()

    async def _watch(self) -> None:
        """Return once the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _takes(self, message: Message) -> bool:
        limited = asyncio.wait_for(self._send(message), LONGEST_STALL_S)
        try:
            asyncio.run_coroutine_threadsafe(limited, self._loop).result()
        except Exception:  # whatever a server raises when its client has gone
            return False
        return True
