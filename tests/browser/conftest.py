"""The whole shop as processes, and people with browsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    ViewportSize,
)
from redis import Redis

from tests.browser.window import Window, fill_window
from tests.support.stack import Stack, Web

PASSWORD = "a-journey-of-1000-li"


@pytest.fixture
def shop(stack: Stack) -> Web:
    """A shop with web, worker and beat; returns the web server."""
    web = stack.web(workers=2, threads=4)
    stack.worker(concurrency=2)
    stack.beat()
    return web


@pytest.fixture
def people(browser: Browser, shop: Web) -> Iterator[Callable[..., Page]]:
    """Call it for a new person's page: a browser context of their own, in English unless told."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def person(**options: Any) -> Page:
        settings = {"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, **options}
        context = browser.new_context(base_url=shop.url, **settings)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield person
    for context in contexts:
        context.close()
    assert not errors, "scripts failed on a page"


# --- One shop for a module ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def window(db: None) -> Window:
    """A filled shop window. Its module keeps database and Redis: see ``kept_for_the_module``."""
    return fill_window(crowd=30)


@contextmanager
def kept_for_the_module(blocker: Any, redis_databases: list[Redis]) -> Iterator[None]:
    """Open the database to all tests of a module, whose processes see what is committed there.

    A module has this as its own ``db``, so that no test has a transaction around it.
    """
    with blocker.unblock():
        for client in redis_databases:
            client.flushdb()
        yield
        call_command("flush", interactive=False, verbosity=0)


@pytest.fixture(scope="module")
def window_shop(
    window: Window, static_files: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """Its web server. Nobody works at its orders, so each stays as it is."""
    directory = tmp_path_factory.mktemp("window")
    with Stack(directory, database=connection.settings_dict["NAME"]) as stack:
        yield stack.web(workers=1, threads=6)


@pytest.fixture(scope="module")
def tabs(browser: Browser, window: Window, window_shop: Web) -> Iterator[Callable[..., Page]]:
    """Call it for somebody's page ("" is a visitor's), which they keep for the module.

    A page of its own for each test would be a process of its own.
    """
    pages: dict[str, Page] = {}

    def of(who: str, language: str, **options: Any) -> Page:
        key = f"{who} {language} {options}"
        if key not in pages:
            locale = {"en": "en-GB", "zh": "zh-CN"}[language]
            context = browser.new_context(base_url=window_shop.url, locale=locale, **options)
            context.set_default_timeout(15_000)
            if who:
                session = {"name": settings.SESSION_COOKIE_NAME, "value": window.session_of(who)}
                context.add_cookies([{**session, "url": window_shop.url}])
            pages[key] = context.new_page()
        return pages[key]

    yield of
    for page in pages.values():
        page.context.close()


class Faults:
    """What went wrong on pages: scripts that failed, the policy broken, strangers asked."""

    def __init__(self, origin: str) -> None:
        self.found: list[str] = []
        self._origin = urlsplit(origin).netloc
        self._pages: list[Page] = []

    def watch(self, page: Page) -> None:
        if page not in self._pages:
            self._pages.append(page)
            page.on("console", self._console)
            page.on("pageerror", self._failure)
            page.on("request", self._request)

    def leave(self) -> None:
        for page in self._pages:
            page.goto("about:blank")
            page.unroute_all()
            page.remove_listener("console", self._console)
            page.remove_listener("pageerror", self._failure)
            page.remove_listener("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.found.append(message.text)

    def _failure(self, error: Error) -> None:
        self.found.append(str(error))

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc not in ("", self._origin):
            self.found.append(f"asks {request.url}")


@pytest.fixture
def visit(tabs: Callable[..., Page], window_shop: Web) -> Iterator[Callable[..., Page]]:
    """Call it with somebody and an address, for the page as they see it. No page has faults."""
    faults = Faults(window_shop.url)

    def visited(
        who: str, url: str, *, size: ViewportSize, language: str = "en", **options: Any
    ) -> Page:
        page = tabs(who, language, **options)
        faults.watch(page)
        page.set_viewport_size(size)
        page.emulate_media(color_scheme="light")
        page.goto(url)
        return page

    yield visited
    faults.leave()
    assert not faults.found


def make_person(name: str, *, admin: bool = False) -> User:
    make = User.objects.create_superuser if admin else User.objects.create_user
    return make(name, password=PASSWORD)


def sign_in(page: Page, name: str) -> None:
    page.goto("/accounts/login/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/")
