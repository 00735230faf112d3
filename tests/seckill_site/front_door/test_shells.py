"""Stored pages: whose they are, how often Django makes them, and what happens without it."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from orders.web.front_door import is_shared_page
from seckill_site.front_door import shells
from seckill_site.front_door.shells import FRESH_S, KEPT_S, MAX_AGE_S, Shells, StoredAnswer
from seckill_site.front_door.threads import Busy

pytestmark = pytest.mark.quick

PAGE = {"HTTP_ACCEPT": "text/html"}


class Django:
    """Answers that are counted; ``status`` and ``fails`` are up to the test."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status, self.fails, self.headers = 200, False, [(b"vary", b"Cookie")]
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, environ: dict[str, Any]) -> Any:
        self.asked.append(environ)
        await self.may_answer.wait()
        if self.fails:
            raise Busy
        text = f"page {len(self.asked)} of {environ['PATH_INFO']} ".encode() * 100
        return {"status": self.status, "headers": [*self.headers, (b"content-length", b"1")]}, text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(shells, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def django() -> Django:
    return Django()


@pytest.fixture
def pages(django: Django, clock: list[float]) -> Shells:
    return Shells(django.ask, is_shared=is_shared_page)


def request(path: str = "/", **more: str) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "HTTP_HOST": "localhost",
        "wsgi.url_scheme": "http",
        **PAGE,
        **more,
    }


async def answered(pages: Shells, request: dict[str, Any]) -> StoredAnswer | None:
    return pages.stored(request) or await pages.answer(request)


def answers(pages: Shells, *requests: dict[str, Any]) -> list[StoredAnswer]:
    """Ask for all at the same time."""

    async def ask() -> list[Any]:
        return await asyncio.gather(*[answered(pages, it) for it in requests])

    return asyncio.run(ask())


def answer(pages: Shells, path: str = "/", **more: str) -> StoredAnswer:
    (found,) = answers(pages, request(path, **more))
    return found


def test_crowd_makes_django_work_once(pages: Shells, django: Django) -> None:
    found = answers(pages, *[request() for _ in range(50)])
    assert len(django.asked) == 1
    assert len({it.body for it in found}) == 1


def test_page_is_made_again_when_it_is_old(
    pages: Shells, django: Django, clock: list[float]
) -> None:
    first = answer(pages)
    clock[0] += FRESH_S * 0.9
    assert answer(pages) == first
    clock[0] += MAX_AGE_S
    assert answer(pages).body.startswith(b"page 2")
    assert len(django.asked) == 2


def test_page_is_shown_while_a_newer_one_is_made(
    pages: Shells, django: Django, clock: list[float]
) -> None:
    first = answer(pages)
    clock[0] += FRESH_S
    django.may_answer.clear()

    async def ask() -> tuple[Any, Any]:
        old = pages.stored(request())
        django.may_answer.set()
        while len(django.asked) < 2 or pages._asking._running:
            await asyncio.sleep(0)
        return old, pages.stored(request())

    old, new = asyncio.run(ask())
    assert old == first
    assert new.body.startswith(b"page 2")


@pytest.mark.parametrize("why", ["busy", "unavailable"])
def test_page_is_kept_while_django_has_none(
    pages: Shells, django: Django, clock: list[float], why: str
) -> None:
    first = answer(pages)
    django.fails, django.status = why == "busy", 503
    clock[0] += KEPT_S / 2
    assert answer(pages) == answer(pages) == first
    assert len(django.asked) == 2  # not with every request
    clock[0] += KEPT_S
    if why == "busy":
        with pytest.raises(Busy):
            answer(pages)
    else:
        assert answer(pages).status == 503
    django.fails, django.status = False, 200
    assert answer(pages).status == 200


@pytest.mark.parametrize(
    "other",
    [
        {"HTTP_ACCEPT_LANGUAGE": "en"},
        {"HTTP_ACCEPT": "application/json"},
        {"HTTP_X_FORWARDED_PROTO": "https"},
        {"PATH_INFO": "/vouchers/7/"},
    ],
    ids=["language", "JSON", "HTTPS", "path"],
)
def test_each_variant_has_a_page_of_its_own(
    pages: Shells, django: Django, other: dict[str, str]
) -> None:
    answers(pages, request(HTTP_ACCEPT_LANGUAGE="zh-hans"), request(**{
        "HTTP_ACCEPT_LANGUAGE": "zh-hans", **other,
    }))  # fmt: skip
    assert len(django.asked) == 2


@pytest.mark.parametrize(
    "left",
    [
        {"REQUEST_METHOD": "POST"},
        {"PATH_INFO": "/orders/"},
        {"PATH_INFO": "/vouchers/7/form/"},
        {"PATH_INFO": "/vouchers/7/waiting/"},
    ],
    ids=["POST", "my orders", "form", "waiting list"],
)
def test_everything_else_is_left_to_django(pages: Shells, left: dict[str, str]) -> None:
    answer(pages, "/vouchers/7/")
    assert answers(pages, {**request("/vouchers/7/"), **left}) == [None]


@pytest.mark.parametrize(
    "other",
    [{"HTTP_COOKIE": "a=b; sessionid=abc"}, {"QUERY_STRING": "x=1"}, {"REQUEST_METHOD": "HEAD"}],
    ids=["session", "query", "HEAD"],
)
def test_everybody_gets_the_same_page(pages: Shells, django: Django, other: dict[str, str]) -> None:
    first = answer(pages, "/vouchers/7/")
    assert answers(pages, {**request("/vouchers/7/"), **other}) == [first]
    assert len(django.asked) == 1


def test_django_is_asked_without_anything_personal(pages: Shells, django: Django) -> None:
    answer(pages, HTTP_COOKIE="theme=dark", HTTP_REFERER="/secret/", HTTP_USER_AGENT="mine")
    (asked,) = django.asked
    assert not {"HTTP_COOKIE", "HTTP_REFERER", "HTTP_USER_AGENT", "REMOTE_ADDR"} & asked.keys()


def test_page_that_sets_a_cookie_is_kept_for_nobody(pages: Shells, django: Django) -> None:
    django.headers.append((b"set-cookie", b"csrftoken=abc"))
    assert answer(pages).body != answer(pages).body
    assert len(django.asked) == 2


@pytest.mark.parametrize("status", [200, 404])
def test_number_of_pages_is_bounded(
    pages: Shells, django: Django, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(pages._pages, "most", 3)
    django.status = status
    for number in range(1, 10):
        answer(pages, f"/vouchers/{number}/")
    assert len(pages._pages._kept) == 3


def test_known_page_is_not_sent_again(pages: Shells, clock: list[float]) -> None:
    headers = dict(answer(pages).headers)
    again = answer(pages, HTTP_IF_NONE_MATCH=headers[b"etag"].decode())
    assert (again.status, again.body) == (304, b"")
    clock[0] += MAX_AGE_S
    assert answer(pages, HTTP_IF_NONE_MATCH=headers[b"etag"].decode()).status == 200


def test_page_is_compressed_for_those_who_take_it(pages: Shells) -> None:
    plain = answer(pages)
    small = answer(pages, HTTP_ACCEPT_ENCODING="br, gzip")
    assert gzip.decompress(small.body) == plain.body
    headers = dict(small.headers)
    assert headers[b"content-encoding"] == b"gzip"
    assert headers[b"content-length"] == str(len(small.body)).encode()
    assert headers[b"vary"] == b"Cookie, Accept-Encoding"
