"""The list of a first-come sale in a browser: kept by the receipt, and checked after the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from orders.models import VoucherOrder
from tests.browser.conftest import Person, make_person
from tests.support.draws import end
from tests.support.orders import make_buyers, make_sale, written_orders
from tests.support.patience import wait_for
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("row_locks", "workers")]

LARGEST_PART_BYTES = 100_000
ASK_PAGE = "fetch(location.pathname, {headers: {Accept: 'text/html'}}).then((it) => it.text())"


def checked(page: Page) -> str:
    page.click("#check-place")
    expect(page.locator("#place-result")).to_be_visible()
    return page.locator("#evidence").get_attribute("data-result") or ""


def test_buyer_checks_the_place_that_this_browser_kept(person: Person) -> None:
    buyer, sale = make_person("gina"), make_sale(stock=50)
    page = person(buyer)
    written_orders(sale, make_buyers(3))
    page.goto(f"/vouchers/{sale.pk}/")
    page.click("#buy")
    expect(page.locator("#position")).to_have_text("4")
    order = VoucherOrder.objects.get(user=buyer)
    written_orders(sale, make_buyers(3))
    end(sale)
    page.reload()
    with page.expect_request_finished(lambda request: "/part-" in request.url) as part:
        assert checked(page) == "right"
    assert 0 < part.value.sizes()["responseBodySize"] <= LARGEST_PART_BYTES
    page.route("**/part-*.txt", partial(answer, lambda text: text.replace(str(order.pk), "1")))
    assert checked(page) == "broken"


def answer(forge: Callable[[str], str], route: Route) -> None:
    route.fulfill(body=forge(route.fetch().text()), content_type="text/plain")


def ended() -> SeckillVoucher:
    sale = make_sale(stock=9)
    for _ in range(2):
        written_orders(sale, make_buyers(3))
    end(sale)
    sale.refresh_from_db()
    return sale


@pytest.mark.slow
def test_place_that_moved_since_it_was_kept_is_told(person: Person) -> None:
    buyer, sale = make_person("hal"), make_sale()
    [token] = written_orders(sale, [buyer])
    page = person(buyer)
    page.goto(f"/vouchers/{sale.pk}/orders/{token.order_id}/")
    kept = f"seckill-evidence-{token.order_id}"
    assert page.evaluate(f"localStorage.getItem('{kept}')").startswith("1 ")
    page.evaluate(f"localStorage.setItem('{kept}', '1 {'0' * 64}')")
    end(sale)
    page.reload()
    assert checked(page) == "moved"


@pytest.mark.slow
def test_list_is_checked_and_searched_in_the_browser(person: Person) -> None:
    sale, page = ended(), person()
    page.goto(f"/vouchers/{sale.pk}/")
    page.click(f"a[href$='/vouchers/{sale.pk}/chain/']")
    page.click("#check")
    expect(page.locator("#result")).to_contain_text("Correct")
    second = VoucherOrder.objects.get(seckill_voucher=sale, position=2)
    head = sale.links.order_by("number")[1].head
    for entered, words in (
        (str(second.pk), "This order is number 2 in the list."),
        (head, "The list has this fingerprint after number 3."),
        ("77", "neither as an order number nor as a fingerprint"),
    ):
        page.fill("#entry", entered)
        page.click("#find button")
        expect(page.locator("#found")).to_contain_text(words)


FORGERIES: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (lambda lines: [*lines[:8], *lines[9:7:-1], *lines[10:]], "does not follow"),
    (lambda lines: [*lines[:7], "77 1790000000123", *lines[8:]], "does not follow"),
    (lambda lines: lines[:-1], "could not be loaded or read"),
    (lambda lines: ["# sale: 1", *lines[1:]], "does not belong to this page"),
    (lambda lines: ["what?"], "could not be loaded or read"),
]


@pytest.mark.slow
def test_forged_list_is_found_out_in_the_browser(person: Person) -> None:
    sale, page = ended(), person()
    for forge, words in FORGERIES:
        page.unroute_all()
        change = partial(lambda it, text: "\n".join(it(text.splitlines())) + "\n", forge)
        page.route("**/list.txt", partial(answer, change))
        page.goto(f"/vouchers/{sale.pk}/chain/")
        page.click("#check")
        expect(page.locator("#result")).to_contain_text(words)


@pytest.mark.slow
def test_open_sale_page_renews_the_head_it_shows(person: Person) -> None:
    sale, page, asked = make_sale(), person(), list[str]()
    path = f"/vouchers/{sale.pk}/"
    page.set_viewport_size({"width": 390, "height": 400})
    page.clock.install()
    page.goto(path)
    page.on("request", lambda it: asked.append(urlsplit(it.url).path))
    written_orders(sale, make_buyers(2))
    sale.refresh_from_db()
    with page.expect_response("**/live/"):
        page.clock.fast_forward(11_000)
    with page.expect_response("**/live/"):
        page.clock.fast_forward(3_000)
    assert path not in asked  # nobody looks at it
    wait_for(lambda: sale.chain_head in page.evaluate(ASK_PAGE))  # it is kept for half a second
    page.locator("#head").scroll_into_view_if_needed()
    with page.expect_response(f"**{path}"):
        page.clock.fast_forward(3_000)
    expect(page.locator("#head")).to_have_text(sale.chain_head)
    expect(page.locator("#chain-entries")).to_have_text("2 orders are in the list so far.")


@pytest.mark.slow
def test_page_of_a_running_sale_has_nothing_to_check(person: Person) -> None:
    sale, page = make_sale(), person()
    written_orders(sale, make_buyers(2))
    sale.refresh_from_db()
    page.goto(f"/vouchers/{sale.pk}/chain/")
    expect(page.locator("#head")).to_have_text(sale.chain_head)
    expect(page.locator("#check")).to_have_count(0)
