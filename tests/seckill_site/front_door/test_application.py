"""The front door: shut where it must be, and out of the way where it fails."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings
from redis import RedisError

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.front_door import application, requests
from seckill_site.front_door.application import YOUNG_OBJECTS, FrontDoor
from seckill_site.front_door.ledger_node import LedgerNode, ledger_node
from seckill_site.front_door.requests import BodyKind
from seckill_site.front_door.threads import Busy
from seckill_site.web.responses import Answer
from seckill_site.wsgi import django
from tests.support.asgi import answer_to, ask
from tests.support.patience import GENEROUS_S
from tests.support.wsgi import Answer as Got

pytestmark = pytest.mark.quick


def behind(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/healthz":
        return django(environ, start_response)
    start_response("301 Moved Permanently", [])
    return [environ["wsgi.input"].read()]


def asked(*responders: Any, **headers: Any) -> Got:
    return ask("GET", "/x/", door=FrontDoor(behind, responders=responders), **headers)


async def yes(environ: dict[str, Any]) -> Answer:
    return Answer(200, "{}", ())


async def no(environ: dict[str, Any]) -> None:
    return None


def test_plain_http_is_left_to_django_if_https_is_required(settings: Settings) -> None:
    settings.HTTPS_ONLY = True
    assert asked(yes).status == 301
    assert asked(yes, HTTP_X_FORWARDED_PROTO="https").status == 200


def test_foreign_host_is_left_to_django() -> None:
    assert asked(yes).status == 200
    assert asked(yes, HTTP_HOST="elsewhere.example").status == 301
    assert asked(yes, HTTP_HOST="").status == 301


def test_first_responder_with_an_answer_wins() -> None:
    async def missing(environ: dict[str, Any]) -> Answer:
        return Answer(404, "", ())

    assert asked(no, yes, missing).status == 200


def test_failing_responder_leaves_the_request_to_django(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(environ: dict[str, Any]) -> None:
        raise RuntimeError("a fault of ours")

    assert asked(broken).status == 301
    assert "the front door failed at /x/" in caplog.text


def test_body_reaches_django_after_the_responders() -> None:
    door = FrontDoor(behind, responders=[no])
    assert ask("POST", "/x/", body=b"all of it", door=door).body == b"all of it"


def test_body_in_chunks_reaches_django() -> None:
    scope = {"type": "http", "method": "POST", "path": "/x/", "headers": [
        (b"host", b"localhost"), (b"transfer-encoding", b"chunked"),
    ]}  # fmt: skip
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"in ", "more_body": True},
        {"type": "http.request", "body": b"parts"},
    ]
    door = FrontDoor(behind, responders=[no])
    assert answer_to(scope, messages, door=door).body == b"in parts"


def test_busy_process_has_a_page_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(environ: dict[str, Any]) -> Answer:
        raise Busy

    content = asked(busy)
    assert (content.status, content.json["code"]) == (503, "unavailable")
    door = FrontDoor(behind, responders=[busy])
    page = ask("GET", "/x/", accept="text/html", door=door, HTTP_ACCEPT_LANGUAGE="en")
    assert (page.status, page.headers["retry-after"]) == (503, "1")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "We are very busy right now" in page.body.decode()
    assert 'href="."' in page.body.decode()


def test_more_slow_bodies_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(requests.MOST_BODIES, BodyKind.SMALL, 0)
    assert ask("POST", "/x/", body=b"text", door=FrontDoor(behind, responders=[])).status == 503
    monkeypatch.setitem(requests.MOST_BODIES, BodyKind.SMALL, 1)
    assert ask("POST", "/x/", body=b"text", door=FrontDoor(behind, responders=[])).status == 301


# --- The life of a process ------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[None]:
    """Undo what a process does to the garbage collection at its start."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


async def nothing() -> None:
    pass


def live(
    *,
    once_started: Callable[[], Awaitable[object]] = nothing,
    once_ended: Callable[[], Awaitable[object]] = nothing,
    at_stop: Sequence[Callable[[], object]] = (),
) -> None:
    """Start and end a process; run these once it has said that it started, and ended."""
    asked: list[str] = []

    async def receive() -> dict[str, Any]:
        asked.append("start" if not asked else "end")
        if asked[-1] == "end":
            await once_started()
        return {"type": "lifespan"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            await once_ended()

    process = FrontDoor(behind, responders=[], at_stop=at_stop)({"type": "lifespan"}, receive, send)
    asyncio.run(asyncio.wait_for(process, GENEROUS_S))
    assert asked == ["start", "end"]


@pytest.mark.usefixtures("collector")
def test_process_leaves_what_it_starts_with_to_no_collection() -> None:
    frozen = []

    async def look() -> None:
        frozen.append((gc.get_freeze_count() > 0, gc.get_threshold()[0]))

    live(once_started=look)
    assert frozen == [(True, YOUNG_OBJECTS)]


@pytest.mark.usefixtures("collector")
def test_process_measures_its_lag_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    async def watch() -> None:
        events.append("watches")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ends")

    async def until_watching() -> None:
        while not events:
            await asyncio.sleep(0)
        events.append("started")

    async def ended() -> None:
        events.append("ended")

    monkeypatch.setattr(application, "watch_lag", watch)
    live(once_started=until_watching, once_ended=ended)
    assert events == ["watches", "started", "ends", "ended"]


@pytest.mark.servers
@pytest.mark.usefixtures("collector")
def test_end_closes_the_ledger_before_it_finishes_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "one.lua"
    path.write_text("return 1")
    call = ScriptCall(script=LuaScript(path), keys=["{test}"], args=[], read=int)
    nodes: list[tuple[asyncio.AbstractEventLoop, LedgerNode]] = []
    finished: list[str] = []

    async def use_ledger() -> None:
        for with_then in (False, True):
            node = ledger_node(with_then=with_then)
            assert await node.run(call) == 1
            nodes.append((asyncio.get_running_loop(), node))
        assert not finished

    def finish() -> None:
        for loop, node in nodes:
            late = asyncio.run_coroutine_threadsafe(node.run(call), loop)
            with pytest.raises(RedisError, match="this process is ending"):
                late.result(GENEROUS_S)
            finished.append(threading.current_thread().name)

    async def ended() -> None:
        finished.append("ended")

    live(at_stop=[finish], once_started=use_ledger, once_ended=ended)
    *threads, last = finished
    assert last == "ended"
    assert len(threads) == len(nodes) == 2
    assert threading.current_thread().name not in threads


@pytest.mark.usefixtures("collector")
def test_unfinished_work_does_not_keep_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    finished: list[str] = []

    def hang() -> None:
        let_go.wait(GENEROUS_S)
        finished.append("late")

    async def ended() -> None:
        finished.append("ended")
        let_go.set()

    monkeypatch.setattr(application, "DRAIN_S", 0.05)
    live(at_stop=[hang], once_ended=ended)
    assert finished == ["ended", "late"]
