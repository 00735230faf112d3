"""The gate before sign-ins: few at a time, and no more of them in a second than it lets through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from seckill_site.front_door import application, sign_in_gate
from seckill_site.front_door.application import FrontDoor
from seckill_site.front_door.sign_in_gate import SignInGate, TooManySignIns
from seckill_site.wsgi import django
from tests.support.asgi import ask

pytestmark = pytest.mark.quick

SIGN_IN = {"REQUEST_METHOD": "POST", "PATH_INFO": "/accounts/login/"}
FREE = [
    {"REQUEST_METHOD": "GET", "PATH_INFO": "/accounts/login/"},
    {"REQUEST_METHOD": "POST", "PATH_INFO": "/vouchers/7/orders/1/pay/"},
]


def behind(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    return django({**environ, "REQUEST_METHOD": "GET", "PATH_INFO": "/healthz"}, start_response)


@pytest.mark.parametrize("path", sign_in_gate.PATHS)
def test_one_too_many_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_gate, "LONGEST_WAIT_S", 0.01)

    async def crowd() -> None:
        gate = SignInGate(places=2)
        async with AsyncExitStack() as held:
            for _ in range(2):
                await held.enter_async_context(gate.pass_through({**SIGN_IN, "PATH_INFO": path}))
            for environ in FREE:
                async with gate.pass_through(environ):
                    pass
            with pytest.raises(TooManySignIns):
                await held.enter_async_context(gate.pass_through(SIGN_IN))

    asyncio.run(crowd())


def test_waiting_one_gets_the_next_place() -> None:
    async def two() -> float:
        gate, loop = SignInGate(places=1), asyncio.get_running_loop()
        started_at = loop.time()
        for _ in range(2):
            async with gate.pass_through(SIGN_IN):
                pass
        return loop.time() - started_at

    assert asyncio.run(two()) >= sign_in_gate.PACE_S


def test_most_waiting_bounds_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_gate, "MOST_WAITING", 0)

    async def one() -> None:
        async with SignInGate(places=1).pass_through(SIGN_IN):
            pass

    with pytest.raises(TooManySignIns):
        asyncio.run(one())


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_refusal_is_429(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_gate, "LONGEST_WAIT_S", 0.01)
    full = SignInGate(places=0)
    monkeypatch.setattr(application, "sign_in_gate", lambda: full)
    door = FrontDoor(behind, responders=())

    refused = ask("POST", "/accounts/login/", door=door, HTTP_ACCEPT=accept)
    passed = ask("GET", "/accounts/login/", door=door, HTTP_ACCEPT=accept)

    assert (refused.status, passed.status) == (429, 200)
    assert refused.headers["retry-after"] == "2"
