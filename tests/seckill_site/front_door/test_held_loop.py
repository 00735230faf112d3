"""The event loop: nothing that the front door does holds it for more than 20 ms."""

from __future__ import annotations

import asyncio
import time
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from seckill_site.front_door.application import FrontDoor
from seckill_site.front_door.threads import Busy
from seckill_site.web.responses import Answer
from seckill_site.wsgi import django
from tests.support.asgi import ask
from tests.support.orders import make_buyer, make_buyers, make_sale, token_for, tokens_for

pytestmark = pytest.mark.django_db

LONGEST_S = 0.020
REPEATS = 8
"""A machine that stands still holds a loop too, but not the same one eight times."""


@contextmanager
def steps() -> Iterator[list[float]]:
    """Collect how long each step of an event loop took."""
    found: list[float] = []
    run = Handle._run

    def timed(handle: Handle) -> Any:
        begun = time.perf_counter()
        try:
            return run(handle)
        finally:
            found.append(time.perf_counter() - begun)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handle, "_run", timed)
        yield found


def longest_hold_s(request: Callable[[], object]) -> float:
    """Return the longest step of a request that is always as long."""
    request()  # imports and caches
    longest = []
    for _ in range(REPEATS):
        with steps() as found:
            request()
        longest.append(max(found))
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


def a_page_of_django() -> Callable[[], object]:
    return lambda: ask("GET", "/", accept="text/html")


def busy_page() -> Callable[[], object]:
    return lambda: ask("GET", "/x/", accept="text/html", door=door_with(busy))


async def busy(environ: dict[str, Any]) -> Answer:
    raise Busy


def door_with(responder: Any) -> FrontDoor:
    return FrontDoor(django, responders=[responder])


@pytest.mark.parametrize("make", [an_order, a_receipt, live_figures, a_page_of_django, busy_page])
def test_no_request_holds_the_loop(make: Callable[[], Callable[[], object]]) -> None:
    assert longest_hold_s(make()) < LONGEST_S


def test_control_responder_that_blocks_holds_the_loop() -> None:
    async def blocking(environ: dict[str, Any]) -> Answer:
        time.sleep(1.5 * LONGEST_S)
        await asyncio.sleep(0)
        return Answer(200, "{}", ())

    assert longest_hold_s(lambda: ask("GET", "/x/", door=door_with(blocking))) > LONGEST_S
