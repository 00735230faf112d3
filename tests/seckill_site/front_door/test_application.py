"""The front door: shut where it must be, and out of the way where it fails."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from typing import Any

import pytest
from pytest_django import Settings

from seckill_site.front_door import requests
from seckill_site.front_door.application import YOUNG_OBJECTS, FrontDoor
from seckill_site.front_door.threads import Busy
from seckill_site.web.responses import Answer
from seckill_site.wsgi import django
from tests.support.asgi import answer_to, ask
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
    monkeypatch.setattr(requests, "MOST_BODIES", 0)
    assert ask("POST", "/x/", body=b"text", door=FrontDoor(behind, responders=[])).status == 503
    monkeypatch.setattr(requests, "MOST_BODIES", 1)
    assert ask("POST", "/x/", body=b"text", door=FrontDoor(behind, responders=[])).status == 301


def test_process_leaves_what_it_starts_with_to_no_collection() -> None:
    before, frozen = gc.get_threshold(), []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan"}

    async def send(message: dict[str, Any]) -> None:
        frozen.append((gc.get_freeze_count() > 0, gc.get_threshold()[0]))

    try:
        asyncio.run(FrontDoor(behind, responders=[])({"type": "lifespan"}, receive, send))
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    assert frozen[0] == (True, YOUNG_OBJECTS)
