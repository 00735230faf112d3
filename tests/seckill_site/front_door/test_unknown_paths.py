"""Paths that lead nowhere: the answer of Django, without its threads."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.templatetags.static import static

from seckill_site import asgi
from seckill_site.front_door.threads import Busy
from tests.support import wsgi
from tests.support.asgi import ask

pytestmark = pytest.mark.django_db

NOWHERE = [
    "/no/such/page/",
    "/favicon.ico",
    "/accounts/nothing/",
    "/vouchers/7/x/",
    "/a\n",
    "/é/",
    "/static/seckill/no.css",
    "/static/../manage.py",
    "/static/\0",
]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_answer_is_that_of_django(accept: str, language: str) -> None:
    sent: dict[str, Any] = {"accept": accept, "HTTP_ACCEPT_LANGUAGE": language}
    for path in NOWHERE:
        first, djangos = ask("GET", path, **sent), wsgi.ask("GET", path, **sent)
        assert (first.status, first.body) == (404, djangos.body)
        first.headers.pop("content-length")
        assert first.headers.items() <= djangos.headers.items()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT"])
def test_unknown_path_needs_no_thread(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("GET", "/healthz")  # which learns the headers of the site

    async def no_thread(*_: object) -> None:
        raise Busy

    monkeypatch.setattr(asgi.application._django, "answer", no_thread)
    assert {ask(method, it).status for it in NOWHERE} == {404}
    for it in ("/terms/", static("seckill/work.js")):
        assert ask("GET", it).status == 503  # the control


@pytest.mark.parametrize(
    ("path", "status"),
    [("/terms", 301), ("/admin/nothing/", 302), ("/orders/", 401)],
)
def test_what_leads_on_is_left_to_django(path: str, status: int) -> None:
    answer = ask("GET", path)
    assert answer.status == wsgi.ask("GET", path).status == status
    assert re.sub(rb"\s", b"", answer.body) == re.sub(rb"\s", b"", wsgi.ask("GET", path).body)
