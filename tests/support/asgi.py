"""Requests through the front door as it is served, from a test's own thread.

Its event loop runs in a thread of its own, as long as the tests. Django's part is called in the
thread of the test, which owns the database connection and its transaction.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache
from typing import Any
from urllib.parse import quote

from orders.placing.publisher import publisher
from seckill_site.asgi import application
from seckill_site.front_door.ledger_node import ledger_node
from seckill_site.front_door.threads import threads
from tests.support import openapi
from tests.support.patience import GENEROUS_S
from tests.support.wsgi import Answer, open_connections

Message = dict[str, Any]


class _Caller(Executor):
    """An executor whose work is done by whoever waits for the answer."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self.work.put(call)
        return future


_caller = _Caller()


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the front door."""
    found = asyncio.new_event_loop()
    threading.Thread(target=found.run_forever, daemon=True).start()
    return found


def open_door() -> None:
    """Connect to the ledger, as a process does before its first request."""

    async def connect() -> None:
        await ledger_node().open()

    asyncio.run_coroutine_threadsafe(connect(), loop()).result(GENEROUS_S)


def ask(
    method: str,
    path: str,
    fields: Any = None,
    *,
    body: bytes | None = None,
    accept: str = "application/json",
    door: Any = application,
    **headers: str,
) -> Answer:
    """Send one request; ``fields`` go as JSON, further headers in the names of WSGI."""
    if body is None:
        body = b"" if fields is None else json.dumps(fields).encode()
    sent = {"HTTP_HOST": "localhost", "HTTP_ACCEPT": accept}
    if body:
        sent |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
    sent |= headers
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": query.encode(),
        "headers": [
            (name.removeprefix("HTTP_").replace("_", "-").lower().encode(), value.encode("latin-1"))
            for name, value in sent.items()
        ],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }
    answer = answer_to(scope, [{"type": "http.request", "body": body}], door=door)
    if door is application:
        openapi.check(method, path, status=answer.status, headers=answer.headers, body=answer.body)
    return answer


def answer_to(scope: Message, messages: list[Message], *, door: Any = application) -> Answer:
    """Send a request as these ASGI messages; then the client waits."""
    open_door()
    future = asyncio.run_coroutine_threadsafe(_exchange(door, scope, messages), loop())
    future.add_done_callback(lambda _: _caller.work.put(None))
    with open_connections():
        while (call := _caller.work.get(timeout=GENEROUS_S)) is not None:
            call()
    answer = future.result()
    publisher.drain(longest_s=GENEROUS_S)
    return answer


async def _exchange(door: Any, scope: Message, messages: list[Message]) -> Answer:
    threads()._pool = _caller
    sent: list[Message] = []
    inbox = iter(messages)

    async def receive() -> Message:
        message = next(inbox, None)
        return message if message is not None else await asyncio.Event().wait()  # type: ignore

    async def send(message: Message) -> None:
        sent.append(message)

    await door(scope, receive, send)
    start, *parts = sent
    headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in parts))
