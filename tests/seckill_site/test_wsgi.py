"""The WSGI and the ASGI application: whose word each takes for the client's address."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from django.core.handlers.wsgi import WSGIHandler
from pytest_django import Settings

from seckill_site import asgi, wsgi
from seckill_site.front_door.threads import threads
from tests.support.patience import GENEROUS_S

pytestmark = pytest.mark.quick

Site = Callable[[str, str], str]
"""Returns the address that a site sees, given the peer's and the ``X-Forwarded-For`` header."""


@pytest.fixture(params=["wsgi", "asgi"])
def site(
    request: pytest.FixtureRequest, settings: Settings, monkeypatch: pytest.MonkeyPatch, db: None
) -> Iterator[Callable[..., Site]]:
    """Return what starts an application with these proxies.

    Each request looks at the connection to the database, where an earlier test has left one.
    """
    settings.ROOT_URLCONF = "tests.seckill_site.web.urls_with_faults"
    monkeypatch.setattr("django.core.wsgi.get_wsgi_application", WSGIHandler)

    before = {module: dict(vars(module)) for module in (wsgi, asgi)}

    def start(*proxies: str) -> Site:
        settings.SECKILL_TRUSTED_PROXIES = list(proxies)
        importlib.reload(wsgi)
        importlib.reload(asgi)
        return through_wsgi if request.param == "wsgi" else through_asgi

    yield start
    for module, names in before.items():
        vars(module).update(names)  # other tests know these very applications


def through_wsgi(peer: str, forwarded_for: str) -> str:
    environ = {
        "PATH_INFO": "/address/",
        "REMOTE_ADDR": peer,
        "HTTP_X_FORWARDED_FOR": forwarded_for,
        "HTTP_HOST": "localhost",
    }
    setup_testing_defaults(environ)
    response = wsgi.application(environ, lambda status, headers: None)
    seen = b"".join(response).decode()
    response.close()  # type: ignore[attr-defined]
    return seen


def through_asgi(peer: str, forwarded_for: str) -> str:
    headers = {"host": "localhost", "x-forwarded-for": forwarded_for}
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/address/",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": (peer, 50_000),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def ask() -> None:
        await asgi.application(scope, receive, send)
        threads().close()

    with ThreadPoolExecutor(1) as thread:  # that of the test may run the loop of a browser
        thread.submit(asyncio.run, ask()).result(GENEROUS_S)
    return b"".join(it.get("body", b"") for it in sent).decode()


def test_trusted_proxy_names_the_client(site: Callable[..., Site]) -> None:
    assert site("10.0.0.1")("10.0.0.1", "203.0.113.7") == "203.0.113.7"


def test_untrusted_proxy_is_ignored(site: Callable[..., Site]) -> None:
    assert site("10.0.0.1")("198.51.100.9", "203.0.113.7") == "198.51.100.9"


def test_forwarded_header_is_ignored_without_trusted_proxies(site: Callable[..., Site]) -> None:
    assert site()("10.0.0.1", "203.0.113.7") == "10.0.0.1"


def test_address_forged_by_client_is_ignored(site: Callable[..., Site]) -> None:
    assert site("10.0.0.1")("10.0.0.1", "192.0.2.66, 203.0.113.7") == "203.0.113.7"
