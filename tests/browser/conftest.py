"""A shop of real processes, and people with browsers."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from django.utils.crypto import get_random_string
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Route,
    ViewportSize,
    expect,
)

from tests.browser.window import Window, fill_window, session_key
from tests.concurrency.sales import make_sale
from tests.fixtures.processes import add_logs
from tests.support.patience import GENEROUS_S
from tests.support.stack import PATIENT, Stack, Web
from vouchers.catalogue.public_sales import KNOWN_S
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.models import SeckillVoucher

PASSWORD = "a-journey-of-1000-li"
PATIENT_MS = GENEROUS_S * 1000
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}

IN_A_HURRY = """
  const { setTimeout } = window;
  window.setTimeout = (call, ms, ...rest) => setTimeout(call, ms / 10, ...rest);
"""
"""A script for a page: its pauses between requests are a tenth as long."""

expect.set_options(timeout=PATIENT_MS)  # not five seconds, for which a machine may stand still

NO_LIMITS = "AbortSignal.timeout = () => new AbortController().signal;"
"""A script for a page: no request of it is given up, however long the answer takes."""

Person = Callable[..., Page]

# Starting a shop costs more than most tests in it. So all modules here have one web server, and
# nothing is emptied between the tests of a module: each makes its own sale.


@pytest.fixture(scope="module")
def db(kept_databases: None) -> None:
    """The module's database, without a transaction around each test."""


@pytest.fixture(scope="package")
def only_web(
    django_db_setup: None, static_files: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """The web server of all modules that need no settings of their own."""
    directory, database = tmp_path_factory.mktemp("web"), connection.settings_dict["NAME"]
    with Stack(directory, database=database, **PATIENT) as stack:
        yield stack.web(workers=1, threads=6)


@pytest.fixture(scope="module")
def web(only_web: Web, kept_databases: None) -> Web:
    """A web server. Without ``workers`` every accepted order stays in the queue."""
    time.sleep(KNOWN_S)  # as long as it answers from what it knows of the last module's sales
    return only_web


@pytest.fixture
def served(web: Web, server: str, request: pytest.FixtureRequest) -> Web:
    """The web server of one test."""
    return web if server == "granian" else request.getfixturevalue("module_plain")


@pytest.fixture(autouse=True)
def logs(module_stack: Stack, web: Web, request: pytest.FixtureRequest) -> Iterator[None]:
    """Show the logs of the processes with a test that fails."""
    yield
    add_logs(request.node, [web, *module_stack.processes])


@pytest.fixture(scope="module")
def workers(module_stack: Stack) -> None:
    """A worker with beat in it, beside the web server."""
    module_stack.worker("--beat", concurrency=2)


@pytest.fixture
def people(browser: Browser, served: Web, db: None) -> Iterator[Person]:
    """Call it with a user, or without for a visitor: a page in a browser context of their own.

    It is in English unless told otherwise. No script may fail on it.
    """
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def page_of(user: User | None = None, **options: Any) -> Page:
        settings = {"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, **options}
        context = browser.new_context(base_url=served.url, **settings)
        contexts.append(context)
        context.set_default_timeout(PATIENT_MS)
        context.on("weberror", lambda failure: errors.append(str(failure.error)))
        if user:
            sign_in(context, user, url=served.url)
        return context.new_page()

    yield page_of
    for context in contexts:
        close(context)
    assert not errors, "scripts failed on a page"


def close(context: BrowserContext) -> None:
    """Close it, although a request of a page may still be in the hands of a test."""
    for page in context.pages:
        page.unroute_all(behavior="ignoreErrors")
    context.close()


@pytest.fixture
def person(people: Person, served: Web) -> Iterator[Person]:
    """Call it as ``people``. No page may have faults or ask another site."""
    faults = Faults(served.url)

    def page_of(user: User | None = None, **options: Any) -> Page:
        page = people(user, **options)
        faults.watch(page)
        return page

    yield page_of
    faults.leave()
    assert faults.found == []


@pytest.fixture
def opened(people: Person) -> Person:
    """Call it to open a sale's page as a buyer or visitor, in a browser context of their own."""

    def page_of(
        sale: SeckillVoucher, buyer: User | None = None, *, script: str = "", **options: Any
    ) -> Page:
        page = people(buyer, **options)
        if script:
            run_first(page, script)
        page.goto(f"/vouchers/{sale.pk}/")
        expect(page.locator("[data-who]:visible")).not_to_have_count(0)  # me/ has answered
        return page

    return page_of


def run_first(page: Page, script: str) -> None:
    """Run a script before those of each page that is opened here."""
    page.context.add_init_script(f"{{ {script} }}")


def change(sale: SeckillVoucher, **terms: Any) -> None:
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **terms))


def begin_in(sale: SeckillVoucher, seconds: int) -> dt.datetime:
    """Move the start to the second after so many, and return it."""
    begins_at = timezone.now().replace(microsecond=0) + dt.timedelta(seconds=seconds + 1)
    change(sale, begins_at=begins_at)
    return begins_at


def cut(route: Route) -> None:
    """Abort a request before it reaches the server."""
    route.abort()


def keep_from_hearing(page: Page) -> None:
    """Drop every further answer of live/, even one that has already been sent."""
    with page.expect_event("requestfailed", lambda it: it.url.endswith("/live/")):
        page.route("**/live/", cut)


def put_on_sale(**terms: Any) -> SeckillVoucher:
    """Put five units of a voucher on sale for two hours."""
    return make_sale(**{"stock": 5, "ends_in_s": 7_200, **terms})


def make_person(name: str, *, admin: bool = False, password: str | None = None) -> User:
    """Return the user of this name, who is made once; without a password only for cookies."""
    user, _ = User.objects.get_or_create(
        username=name, defaults={"is_staff": admin, "is_superuser": admin}
    )
    user.set_password(password)
    user.save()
    return user


def sign_in(context: BrowserContext, user: User, *, url: str) -> None:
    """Sign a user in by the cookies that the form sets, which spares the form."""
    cookies = {
        settings.SESSION_COOKIE_NAME: session_key(user),
        settings.CSRF_COOKIE_NAME: get_random_string(32),
    }
    context.add_cookies([{"name": it, "value": cookies[it], "url": url} for it in cookies])


def sign_in_by_form(page: Page, name: str) -> None:
    page.goto("/accounts/login/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/")


# --- A shop with something on every page ----------------------------------------------------------


@pytest.fixture(scope="module")
def window(db: None) -> Window:
    """A filled shop window."""
    return fill_window(crowd=30)


@pytest.fixture(scope="module")
def tabs(browser: Browser, window: Window, web: Web) -> Iterator[Person]:
    """Call it for a user's page ("" is a visitor), which stays open for the module.

    A new page for each test would be a new browser process each time.
    """
    pages: dict[str, Page] = {}

    def of(who: str, language: str, **options: Any) -> Page:
        key = f"{who} {language} {options}"
        if key not in pages:
            locale = {"en": "en-GB", "zh": "zh-CN"}[language]
            context = browser.new_context(base_url=web.url, locale=locale, **options)
            context.set_default_timeout(PATIENT_MS)
            if who:
                sign_in(context, window.people[who], url=web.url)
            pages[key] = context.new_page()
        return pages[key]

    yield of
    for page in pages.values():
        page.context.close()


class Faults:
    """Faults of pages: failed scripts, policy violations and foreign requests."""

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
            page.unroute_all(behavior="ignoreErrors")
            page.goto("about:blank")
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
def visit(tabs: Person, web: Web) -> Iterator[Person]:
    """Call it with a user and a URL for the page as that user sees it. No page may have faults."""
    faults = Faults(web.url)

    def visited(
        who: str, url: str, *, size: ViewportSize, language: str = "en", **options: Any
    ) -> Page:
        page = tabs(who, language, **options)
        faults.watch(page)
        page.set_viewport_size(size)
        page.emulate_media(color_scheme="light")
        page.goto(url)
        if "#code=" in url:  # the page's script asks for it
            page.wait_for_selector("[data-verdict]")
        return page

    yield visited
    faults.leave()
    assert not faults.found
