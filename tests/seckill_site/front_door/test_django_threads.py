"""Django's threads behind the front door: whole answers, streams, and clients that go away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.utils.translation import get_language
from pytest_django import Settings

from seckill_site.front_door import django_threads
from seckill_site.front_door.django_threads import WHOLE_BYTES, DjangoThreads
from seckill_site.front_door.threads import Busy, Threads, threads
from seckill_site.wsgi import django as real_django
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick

Message = dict[str, Any]
THREADS = 2


class Body:
    """The body of an answer that notes whether it was closed."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = chunks
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks)

    def close(self) -> None:
        self.closed.set()


def answering(body: Any, status: str = "200 OK") -> Callable[..., Any]:
    def application(environ: Message, start_response: Any) -> Any:
        start_response(status, [("Content-Type", "text/plain")])
        return body

    return application


class Client:
    """What an ASGI server knows of a client: what it was sent, and whether it is still there."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.got.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(it.get("body", b"") for it in self.got)


def serve(
    application: Any,
    use: Callable[[DjangoThreads], Any],
    *,
    most_waiting: int = 100,
    size: int = THREADS,
) -> Any:
    """Run a coroutine with the application in threads."""

    async def run() -> Any:
        bounded = Threads(threads=size, most_waiting=most_waiting)
        threads.use(bounded)
        try:
            return await asyncio.wait_for(use(DjangoThreads(application)), GENEROUS_S)
        finally:
            bounded.close()

    return asyncio.run(run())


async def answered(django: DjangoThreads, client: Client, method: str = "GET") -> None:
    await django.answer({"REQUEST_METHOD": method}, client.receive, client.send)


def test_whole_answer_is_handed_over_at_once() -> None:
    body = Body([b"one ", b"two"])

    async def use(django: DjangoThreads) -> Client:
        client = Client()
        await answered(django, client)
        return client

    got = serve(answering(body, "404 Not Found"), use).got
    assert [it["type"] for it in got] == ["http.response.start", "http.response.body"]
    assert (got[0]["status"], got[0]["headers"]) == (404, [(b"content-type", b"text/plain")])
    assert got[1]["body"] == b"one two"
    assert body.closed.is_set()


def test_answer_to_head_has_no_body() -> None:
    async def use(django: DjangoThreads) -> bytes:
        client = Client()
        await answered(django, client, "HEAD")
        return client.body

    assert serve(answering([b"text"]), use) == b""


def test_long_answer_is_streamed() -> None:
    chunks = [bytes([number]) * 100_000 for number in range(30)]

    async def use(django: DjangoThreads) -> Client:
        client = Client()
        await answered(django, client)
        return client

    client = serve(answering(Body(chunks)), use)
    assert client.body == b"".join(chunks)
    assert len(client.got) > 2
    assert not client.got[-1]["more_body"]


def endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 100_000


@pytest.mark.parametrize("how", ["goes away", "stops reading"])
def test_lost_clients_of_streams_free_their_threads(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(django_threads, "LONGEST_STALL_S", 0.2)
    bodies: list[Body] = []

    def application(environ: Message, start_response: Any) -> Any:
        start_response("200 OK", [])
        if environ["REQUEST_METHOD"] == "POST":
            return [b"still here"]
        bodies.append(Body(endless()))
        return bodies[-1]

    async def use(django: DjangoThreads) -> bytes:
        clients = [Client() for _ in range(THREADS)]
        streams = [asyncio.ensure_future(answered(django, it)) for it in clients]
        while not all(len(it.got) > 3 for it in clients):
            await asyncio.sleep(0.01)
        assert threads().all_work
        for client in clients:
            client.gone.set() if how == "goes away" else client.reads.clear()
        await asyncio.gather(*streams)
        client = Client()
        await answered(django, client, "POST")
        return client.body

    assert serve(application, use) == b"still here"
    assert all(body.closed.is_set() for body in bodies)


def test_more_streams_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django_threads, "MOST_STREAMS", 1)

    async def use(django: DjangoThreads) -> list[Message]:
        first, second = Client(), Client()
        stream = asyncio.ensure_future(answered(django, first))
        while not first.got:
            await asyncio.sleep(0.01)
        with pytest.raises(Busy):
            await answered(django, second)
        first.gone.set()
        await stream
        return second.got

    assert serve(answering_with(lambda: Body(endless())), use) == []


def answering_with(make: Callable[[], Any]) -> Callable[..., Any]:
    def application(environ: Message, start_response: Any) -> Any:
        start_response("200 OK", [])
        return make()

    return application


def test_whole_answer_of_a_large_page_is_not_a_stream() -> None:
    class Page(Body):
        streaming = False

    async def use(django: DjangoThreads) -> int:
        client = Client()
        await answered(django, client)
        return len(client.got)

    assert serve(answering(Page([b"x" * (WHOLE_BYTES + 1)])), use) == 2


def test_requests_beyond_the_queue_are_refused_at_once() -> None:
    free = threading.Event()

    def application(environ: Message, start_response: Any) -> Any:
        free.wait(GENEROUS_S)
        start_response("200 OK", [])
        return [b"late"]

    async def use(django: DjangoThreads) -> list[bytes]:
        clients = [Client() for _ in range(THREADS + 3)]
        waiting = [asyncio.ensure_future(answered(django, it)) for it in clients]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await answered(django, Client())
        free.set()
        await asyncio.gather(*waiting)
        return [it.body for it in clients]

    assert serve(application, use, most_waiting=3) == [b"late"] * (THREADS + 3)


def test_cancelled_request_keeps_its_thread_until_django_is_done() -> None:
    begun, free = threading.Event(), threading.Event()

    def application(environ: Message, start_response: Any) -> Any:
        begun.set()
        free.wait(GENEROUS_S)
        start_response("200 OK", [])
        return []

    async def use(django: DjangoThreads) -> tuple[bool, bool]:
        requests = [asyncio.ensure_future(answered(django, Client())) for _ in range(THREADS)]
        await asyncio.to_thread(begun.wait, GENEROUS_S)
        for request in requests:
            request.cancel()
        await asyncio.sleep(0)
        during = threads().all_work
        free.set()
        while threads().all_work:
            await asyncio.sleep(0.01)
        return during, threads().all_work

    assert serve(application, use) == (True, False)


def test_error_of_the_application_is_raised() -> None:
    def application(environ: Message, start_response: Any) -> Any:
        raise RuntimeError("a fault of ours")

    async def use(django: DjangoThreads) -> bool:
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await answered(django, Client())
        return threads().all_work

    assert serve(application, use) is False


def test_error_in_a_stream_is_raised_and_frees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django_threads, "MOST_STREAMS", 1)

    def broken() -> Iterator[bytes]:
        yield b"x" * (WHOLE_BYTES + 1)
        raise RuntimeError("a fault of ours")

    async def use(django: DjangoThreads) -> None:
        for _ in range(2):
            client = Client()
            with pytest.raises(RuntimeError, match="a fault of ours"):
                await answered(django, client)
            assert client.got[-1]["more_body"]

    serve(answering_with(broken), use)


# --- The real Django in a thread ------------------------------------------------------------------

happened: list[tuple[str, int]] = []
"""What happened in which thread."""


def note(what: str) -> None:
    happened.append((what, threading.get_ident()))


def whole(request: HttpRequest) -> HttpResponse:
    note("view")
    return HttpResponse(get_language())


def stream(request: HttpRequest) -> StreamingHttpResponse:
    note("view")
    return StreamingHttpResponse(iter([b"x" * (WHOLE_BYTES + 1), b"end"]))


urlpatterns = [path("whole/", whole), path("stream/", stream)]


def request_for(address: str, **headers: str) -> Message:
    environ: Message = {"PATH_INFO": address, "HTTP_HOST": "localhost", **headers}
    setup_testing_defaults(environ)
    return environ


@pytest.fixture
def signals() -> Iterator[None]:
    """Note when Django sends the signals that open and close database connections."""
    happened.clear()

    def started(**_: Any) -> None:
        note("started")

    def finished(**_: Any) -> None:
        note("finished")

    request_started.connect(started)
    request_finished.connect(finished)
    yield
    request_started.disconnect(started)
    request_finished.disconnect(finished)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("address", ["/whole/", "/stream/"])
def test_signals_and_view_share_one_thread(address: str, settings: Settings) -> None:
    settings.ROOT_URLCONF = __name__

    async def use(django: DjangoThreads) -> int:
        client = Client()
        await django.answer(request_for(address), client.receive, client.send)
        return int(client.got[0]["status"])

    assert serve(real_django, use) == 200
    assert [what for what, _ in happened] == ["started", "view", "finished"]
    (thread,) = {thread for _, thread in happened}
    assert thread != threading.get_ident()  # that of the event loop


def test_no_request_inherits_the_language_of_its_thread(settings: Settings) -> None:
    settings.ROOT_URLCONF = __name__
    happened.clear()
    asked = ["en", "zh-hans", "en", "", "en"]

    async def use(django: DjangoThreads) -> list[str]:
        answers = []
        for language in asked:
            headers = {"HTTP_ACCEPT_LANGUAGE": language} if language else {}
            _, body = await django.ask(request_for("/whole/", **headers))
            answers.append(body.decode())
        return answers

    answers = serve(real_django, use, size=1)
    assert answers == [language or settings.LANGUAGE_CODE for language in asked]
    assert len({thread for _, thread in happened}) == 1


def test_control_thread_keeps_the_language_of_its_last_request(settings: Settings) -> None:
    settings.ROOT_URLCONF = __name__

    async def use(django: DjangoThreads) -> list[str]:
        kept = []
        for language in ("en", "zh-hans"):
            await django.ask(request_for("/whole/", HTTP_ACCEPT_LANGUAGE=language))
            kept.append(await threads().run(get_language))
        return kept

    assert serve(real_django, use, size=1) == ["en", "zh-hans"]
