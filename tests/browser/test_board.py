"""The board in a browser: live figures, stale figures, and actions on a sale."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NO_LIMITS, Person, cut, make_person, run_first
from tests.concurrency.sales import crowd_of, make_sale, order_requests, wait_until_quiet
from tests.support.crowd import fire
from tests.support.stack import Web
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SaleState, SeckillVoucher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]


@pytest.fixture
def violations() -> list[str]:
    """Violations of the content security policy on the board."""
    return []


@pytest.fixture
def operator(people: Person, violations: list[str]) -> Person:
    """Call it for the page of an operator who is signed in."""
    boss = make_person("boss", admin=True)

    def page(**options: object) -> Page:
        page = people(boss, **options)
        page.on("console", lambda it: violations.append(it.text) if "Content" in it.text else None)
        return page

    return page


def board_of(sale: SeckillVoucher, what: str = "") -> str:
    return f"/admin/vouchers/seckillvoucher/{sale.pk}/board/{what}"


def expect_figure(page: Page, name: str, text: str) -> None:
    expect(page.locator(f'[data-text="{name}"]')).to_have_text(text)


def test_figures_follow_orders(operator: Person, web: Web, violations: list[str]) -> None:
    sale = make_sale(stock=300)
    page = operator()
    run_first(page, NO_LIMITS)
    page.goto(board_of(sale))
    expect_figure(page, "left", "300")
    expect(page.locator("[data-clock]")).to_contain_text("Ends in 00:0")

    fire(order_requests(sale, crowd_of(sale, count=40)), url=web.url, connections=8)

    expect_figure(page, "left", "260")
    expect(page.get_by_role("img", name="Left: 260 of 300 vouchers")).to_be_visible()
    wait_until_quiet(sale)
    expect_figure(page, "sum", "300 = 260 + 0 + 40")
    expect(page.locator("[data-verdict]")).to_have_text("adds up")
    expect(page.locator('[data-status="unpaid"]')).to_have_text("40")
    expect(page.locator("#pace .chart__text")).to_contain_text("40 were accepted")
    for name in ("pace", "left"):
        expect(page.locator(f"#{name} canvas")).to_be_visible()
    expect(page.locator("[data-says]")).to_have_text("")  # figures are no news
    assert violations == []


def test_hidden_board_does_not_poll(operator: Person) -> None:
    asked: list[str] = []
    page = operator()
    page.on("request", lambda it: asked.append(it.url) if it.url.endswith("/data/") else None)
    page.clock.install()
    page.goto(board_of(make_sale(stock=5)))
    with page.expect_response("**/data/"):
        page.clock.run_for(2_000)

    turn(page, hidden=True)
    page.evaluate("Promise.resolve()")
    seen = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == seen

    with page.expect_response("**/data/"):
        turn(page, hidden=False)
    with page.expect_response("**/data/"):
        page.clock.run_for(2_000)


def turn(page: Page, *, hidden: bool) -> None:
    """Make the page believe that its tab is hidden or visible."""
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_figures_are_marked_stale_until_the_server_answers(operator: Person, web: Web) -> None:
    sale = make_sale(stock=50)
    page = operator()
    page.goto(board_of(sale))
    page.route("**/data/", cut)
    expect(page.locator("[data-stale]")).to_contain_text("the server is not responding")
    expect(page.locator("[data-says]")).to_contain_text("Out of date since")
    expect_figure(page, "left", "50")
    fire(order_requests(sale, crowd_of(sale, count=10)), url=web.url, connections=4)

    page.unroute("**/data/", cut)
    expect_figure(page, "left", "40")
    expect(page.locator("[data-stale]")).to_be_hidden()
    expect(page.locator("[data-says]")).to_have_text("The figures are live again.")


def test_board_says_that_user_was_signed_out(operator: Person) -> None:
    page = operator()
    page.goto(board_of(make_sale(stock=5)))
    page.context.clear_cookies()
    expect(page.locator("[data-stale]")).to_contain_text("you are signed out")


def test_pause_reaches_buyers_page_and_colleagues_board(operator: Person, people: Person) -> None:
    sale = make_sale(stock=5)
    buyer, colleague, page = people(make_person("ann")), operator(), operator()
    buyer.goto(f"/vouchers/{sale.pk}/")
    expect(buyer.locator("#buy-label")).to_have_text("Buy now")
    colleague.goto(board_of(sale))
    page.goto(board_of(sale))

    page.click("[data-action=pause] a")
    page.fill("#id_reason", "the price is wrong")
    page.get_by_role("button", name="Yes, pause").click()

    page.wait_for_url(f"**{board_of(sale)}")
    expect(page.locator(".messagelist")).to_contain_text("Paused. Reason: the price is wrong")
    expect(page.locator("[data-state]")).to_have_text("Paused")
    expect(colleague.locator("[data-state]")).to_have_text("Paused")
    expect(colleague.locator("[data-says]")).to_have_text("The sale is now: Paused.")
    expect(colleague.locator("[data-history] tr")).to_contain_text("the price is wrong")
    expect(colleague.locator("[data-action=resume]")).to_be_visible()
    expect(colleague.locator("[data-action=pause]")).to_be_hidden()
    expect(buyer.locator("#buy-label")).to_have_text("Sale paused")


def test_staff_runs_a_sale_without_javascript(operator: Person) -> None:
    sale = make_sale(stock=5)
    page = operator(java_script_enabled=False)
    page.goto(board_of(sale))
    expect_figure(page, "left", "5")

    page.click("[data-action=stock] a")
    page.fill("#id_stock", "9")
    page.click("[type=submit] >> text=Yes, change the stock")
    expect_figure(page, "left", "9")
    page.click("[data-action=end] a")
    page.fill("#id_reason", "enough")
    page.click("[type=submit] >> text=Yes, end the sale now")

    expect(page.locator("[data-state]")).to_have_text("Ended")
    expect(page.locator("[data-history] tr")).to_have_count(2)
    assert snapshot(sale_id=sale.pk).state is SaleState.ENDED


def test_board_fits_a_phone_and_charts_follow_colour_scheme(operator: Person) -> None:
    page = operator(viewport={"width": 390, "height": 844}, color_scheme="light", locale="zh-CN")
    page.goto(board_of(make_sale(stock=1_000_000)))
    expect(page.locator("#pace canvas")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    marker = page.locator("#pace .u-marker").nth(1)
    colour = marker.evaluate("it => it.style.background")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "colour => document.querySelectorAll('#pace .u-marker')[1].style.background !== colour",
        arg=colour,
    )
