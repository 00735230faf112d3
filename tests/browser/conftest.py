"""The whole shop as processes, and people with browsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page

from tests.stack import Stack, Web

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


def make_person(name: str, *, admin: bool = False) -> User:
    make = User.objects.create_superuser if admin else User.objects.create_user
    return make(name, password=PASSWORD)


def sign_in(page: Page, name: str) -> None:
    page.goto("/accounts/login/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/")
