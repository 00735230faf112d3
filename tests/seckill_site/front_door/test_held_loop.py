"""The event loop: nothing that the front door does holds it for more than 20 ms."""

from __future__ import annotations

import asyncio
import time
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from seckill_site.asgi import application
from seckill_site.front_door.application import FrontDoor
from seckill_site.front_door.shells import Shells
from seckill_site.front_door.threads import Busy
from seckill_site.web.responses import Answer
from seckill_site.wsgi import django
from tests.support.asgi import answer_to, ask
from tests.support.browsers import session_cookie
from tests.support.orders import make_buyer, make_buyers, make_sale, token_for, tokens_for
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer as Got

pytestmark = pytest.mark.django_db

LONGEST_S = 0.020
REPEATS = 8
"""A machine that stands still holds a loop too, but not the same one eight times."""

SALES = 30
UPLOAD_BYTES = 5 * 1024 * 1024
UPLOAD_PART_BYTES = 64 * 1024


@contextmanager
def steps() -> Iterator[list[float]]:
    """Collect how long each step of an event loop took."""
    taken_s: list[float] = []
    run = Handle._run

    def timed(handle: Handle) -> Any:
        begun = time.perf_counter()
        try:
            return run(handle)
        finally:
            taken_s.append(time.perf_counter() - begun)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handle, "_run", timed)
        yield taken_s


def longest_hold_s(request: Callable[[], object]) -> float:
    """Return the longest step of a request that is always as long."""
    request()  # imports and caches
    longest = []
    for _ in range(REPEATS):
        with steps() as taken_s:
            request()
        longest.append(max(taken_s))
    return min(longest)


def an_order() -> Callable[[], object]:
    sale = make_sale(stock=REPEATS * 2)
    tokens = iter(tokens_for(sale, make_buyers(REPEATS * 2)))
    return lambda: ask("POST", f"/vouchers/{sale.pk}/orders/", {"token": next(tokens).sign()})


def a_receipt() -> Callable[[], object]:
    token = token_for(make_sale(stock=1), make_buyer())
    path = f"/vouchers/{token.sale_id}/orders/"
    ask("POST", path, {"token": token.sign()})
    return lambda: ask("GET", f"{path}{token.order_id}/", HTTP_PURCHASE_TOKEN=token.sign())


def live_figures() -> Callable[[], object]:
    sale = make_sale(stock=1)
    return lambda: ask("GET", f"/vouchers/{sale.pk}/live/")


def signed_in() -> dict[str, Any]:
    """Return the cookie of a buyer who has signed in."""
    return {"HTTP_COOKIE": session_cookie(make_buyer())}


def me() -> Callable[[], object]:
    path, cookie = f"/me/?sale={make_sale().pk}", signed_in()
    return lambda: succeeded(ask("GET", path, **cookie))


def a_token() -> Callable[[], object]:
    path, cookie = f"/vouchers/{make_sale().pk}/token/", signed_in()
    return lambda: succeeded(ask("GET", path, **cookie))


def a_stored_page() -> Callable[[], object]:
    make_sale()
    ask("GET", "/", accept="text/html")
    return lambda: succeeded(ask("GET", "/", accept="text/html"))


def a_page_to_store() -> Callable[[], object]:
    for _ in range(SALES):
        make_sale()

    def request() -> object:
        shells()._pages.forget()
        found = succeeded(ask("GET", "/", accept="text/html", HTTP_ACCEPT_ENCODING="gzip"))
        assert len(shells()._pages._kept) == 1
        return found

    return request


def shells() -> Shells:
    found: Shells = application._shells
    return found


def a_page_of_django() -> Callable[[], object]:
    return lambda: succeeded(ask("GET", "/accounts/login/", accept="text/html"))


def an_upload() -> Callable[[], object]:
    """Return a request with a body of 5 MB, which arrives in parts as servers hand them over."""
    parts = [bytes(UPLOAD_PART_BYTES)] * (UPLOAD_BYTES // UPLOAD_PART_BYTES)
    messages = [{"type": "http.request", "body": it, "more_body": True} for it in parts]
    scope = {"type": "http", "method": "POST", "path": "/x/", "headers": [
        (b"host", b"localhost"),
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % UPLOAD_BYTES),
    ]}  # fmt: skip
    door = FrontDoor(length_of_body, responders=[])

    def request() -> object:
        answer = answer_to(scope, [*messages, {"type": "http.request"}], door=door)
        assert answer.body == b"%d" % UPLOAD_BYTES
        return answer

    return request


def length_of_body(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"%d" % len(environ["wsgi.input"].read())]


def succeeded(answer: Got) -> Got:
    assert answer.status == 200
    return answer


def busy_page() -> Callable[[], object]:
    return lambda: ask("GET", "/x/", accept="text/html", door=door_with(busy))


async def busy(environ: dict[str, Any]) -> Answer:
    raise Busy


def door_with(responder: Any) -> FrontDoor:
    return FrontDoor(django, responders=[responder])


REQUESTS = [
    an_order,
    a_receipt,
    live_figures,
    me,
    a_token,
    a_stored_page,
    a_page_to_store,
    a_page_of_django,
    an_upload,
    busy_page,
]


@pytest.mark.parametrize("make", slow_after(2, REQUESTS))
def test_no_request_holds_the_loop(make: Callable[[], Callable[[], object]]) -> None:
    assert longest_hold_s(make()) < LONGEST_S


def test_control_responder_that_blocks_holds_the_loop() -> None:
    async def blocking(environ: dict[str, Any]) -> Answer:
        time.sleep(1.5 * LONGEST_S)
        await asyncio.sleep(0)
        return Answer(200, "{}", ())

    assert longest_hold_s(lambda: ask("GET", "/x/", door=door_with(blocking))) > LONGEST_S
