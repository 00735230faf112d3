"""The first view of every page of buyers: light, steady and quick, however it is looked at.

Axe looks here only at the pages that ``test_accessibility.py`` leaves out.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect

from tests.browser.conftest import sign_in
from tests.browser.test_accessibility import (
    BUYERS_PAGES,
    DESK,
    PHONE,
    Where,
    assert_no_overflow,
    at,
    emulate,
    findings,
    in_tiers,
)
from tests.browser.test_paying import LARGEST_SHIFT, WATCH_SHIFTS
from tests.browser.window import OFFERS, Window, fill_window, join_line
from tests.support.draws import make_draw
from tests.support.orders import make_buyers, make_sale, written_orders
from tests.support.photos import noise_file
from tests.support.stack import Web

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(300)]

MOST_BYTES = 50_000
NGINX_LEVEL = 5
"""``gzip_comp_level`` in ``deploy/nginx.conf``, which compresses pages; files are already."""

LATEST_PAINT_MS = 3_000
"""The first paint of the quickest of a page's views, however busy the machine is with other tests.

The aim is 500 ms on a quiet machine; the log has the figure of each page.
"""

VIEWS = (("en", PHONE, "light"), ("zh", DESK, "light"), ("zh", PHONE, "dark"), ("en", DESK, "dark"))
"""Language, size and colours; of the other colours only the contrast is looked at."""

OTHER: dict[str, Literal["light", "dark"]] = {"light": "dark", "dark": "light"}

PAGES: dict[str, tuple[str, Where]] = {
    **{name: it for name, it in BUYERS_PAGES.items() if not name.startswith("lab")},
    "profile": ("ann", at("/accounts/profile/")),
    "email": ("ann", at("/accounts/email/")),
    "devices": ("ann", at("/accounts/sessions/")),
    "sign-in-by-code": ("", at("/accounts/login/code/")),
    "forgotten": ("", at("/accounts/password/reset/")),
    "room": ("cora", lambda window: f"/vouchers/{room(window)}/room/"),
    "yours-of-the-last": ("ann", lambda window: f"/vouchers/{sold_out_to(window, 'ann')}/"),
    "draw": ("ben", lambda window: f"/vouchers/{make_draw().pk}/"),
    "draw-record": ("", lambda window: f"/vouchers/{make_draw().pk}/draw/"),
    "form": ("ben", lambda window: f"/vouchers/{window.sales['open'].pk}/form/"),
    "method": ("", lambda window: f"/vouchers/{window.sales['open'].pk}/orders/"),
}

ALWAYS = {"list", "open", "receipt-paid", "code", "my-orders"}
"""The pages of the default tier; the slow tier looks at every page."""


def room(window: Window) -> int:
    sale = window.open_room(people=40)
    join_line(sale, window.people["cora"], *make_buyers(300))
    return sale.pk


def sold_out_to(window: Window, who: str) -> int:
    """Return a sale whose only unit this buyer has still to pay."""
    sale = make_sale(stock=1)
    written_orders(sale, [window.people[who]])
    return sale.pk


@pytest.fixture(scope="module")
def window(db: None) -> Window:
    """A filled shop window, each offer with a picture as heavy as pictures can be."""
    heavy = noise_file(size=(420, 236))
    return fill_window(crowd=30, pictures={it.drawing: heavy for it in OFFERS.values()})


class FirstView:
    """One page in a browser that has nothing of it yet."""

    def __init__(self, context: BrowserContext) -> None:
        self.page = context.new_page()
        self._answers: list[Response] = []
        self.page.on("response", self._note)
        self.page.add_init_script(WATCH_SHIFTS)

    def look(self, url: str) -> None:
        """Open it, and wait until its scripts have asked for what they want."""
        self.page.goto(url)
        self.page.wait_for_load_state("networkidle")
        expect(self.page.locator("main")).to_be_visible()

    def _note(self, answer: Response) -> None:
        self._answers.append(answer)

    @property
    def weights(self) -> dict[str, int]:
        """What has come, in bytes without headers, by address."""
        return {it.url: _bytes_of(it) for it in self._answers}

    @property
    def shift(self) -> float:
        return float(self.page.evaluate("window.shift"))

    @property
    def first_paint_ms(self) -> float:
        script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 1e9"
        return float(self.page.evaluate(script))


def _bytes_of(answer: Response) -> int:
    if "text/html" in answer.headers.get("content-type", "") and not answer.request.redirected_to:
        return len(gzip.compress(answer.body(), NGINX_LEVEL))
    return int(answer.request.sizes()["responseBodySize"])


@pytest.fixture
def first_view(browser: Browser, window: Window, web: Web) -> Iterator[Callable[..., FirstView]]:
    """Call it with a user and how the page is looked at."""
    contexts: list[BrowserContext] = []

    def view(who: str, language: str, size: Any, scheme: Any) -> FirstView:
        locale = {"en": "en-GB", "zh": "zh-CN"}[language]
        context = browser.new_context(
            base_url=web.url, locale=locale, viewport=size, color_scheme=scheme
        )
        contexts.append(context)
        if who:
            sign_in(context, window.people[who], url=web.url)
        return FirstView(context)

    yield view
    for context in contexts:
        context.close()


def axe(page: Page, scheme: str) -> set[str]:
    """Return what axe finds in these colours, and of the contrast in the others."""
    found = findings(page, inject=True)
    emulate(page, color_scheme=OTHER[scheme])
    return found | findings(page, only="color-contrast")


@pytest.mark.parametrize("name", in_tiers(PAGES, default=ALWAYS))
def test_first_view_is_light_steady_and_quick(
    name: str,
    window: Window,
    first_view: Callable[..., FirstView],
) -> None:
    who, where = PAGES[name]
    url, found = where(window), dict[str, object]()
    paints, weights, shifts = list[float](), list[int](), list[float]()
    for language, size, scheme in VIEWS:
        view = first_view(who, language, size, scheme)
        view.look(url)
        paints.append(view.first_paint_ms)
        weights.append(sum(view.weights.values()))
        shifts.append(view.shift)
        wrong = {
            "shift": shifts[-1] > LARGEST_SHIFT and shifts[-1],
            "bytes": weights[-1] > MOST_BYTES and view.weights,
            "axe": name not in BUYERS_PAGES and axe(view.page, scheme),
        }
        found |= {
            f"{language} {size['width']} {scheme}: {it}": wrong[it] for it in wrong if wrong[it]
        }
        view.page.context.close()
    logger.info(
        "%s: first paint %.0f ms; at most %s bytes, shift %.3f",
        name, min(paints), max(weights), max(shifts),
    )  # fmt: skip
    assert found == {}
    assert min(paints) <= LATEST_PAINT_MS


LINES = """it => {
  const range = document.createRange();
  range.selectNodeContents(it);
  return new Set([...range.getClientRects()].map((box) => box.top)).size;
}"""


@pytest.mark.parametrize("name", ["code", "receipt-paid"])
def test_buttons_of_the_code_have_one_line_on_a_phone(
    name: str, window: Window, first_view: Callable[..., FirstView]
) -> None:
    who, where = PAGES[name]
    for language in ("en", "zh"):
        page = first_view(who, language, PHONE, "light").page
        page.goto(where(window))
        buttons = page.locator(".code__actions .button:visible").all()
        assert len(buttons) >= 3
        assert [it.evaluate(LINES) for it in buttons] == [1] * len(buttons)
        assert_no_overflow(page)
