"""The moments of a sale: its last seconds, a shop that does not answer, a refusal read again.

There is no worker: an accepted order stays in the queue.
"""

from __future__ import annotations

import re
import time

import pytest
from django.utils import timezone, translation
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import (
    IN_A_HURRY,
    Person,
    begin_in,
    change,
    cut,
    keep_from_hearing,
    run_first,
    sign_in,
)
from tests.concurrency.sales import make_sale
from tests.support.orders import make_buyer, make_buyers, reserved
from tests.support.patience import GENEROUS_S
from tests.support.stack import Stack, Web
from vouchers.inventory.sold_out_cache import SOLD_OUT_TTL_S
from vouchers.models import SaleStage, SeckillVoucher
from vouchers.templatetags.seckill import stock_words

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("row_locks")]

ORDERS, LIVE = "**/orders/", "**/live/"
PATIENT_MS = GENEROUS_S * 1000

FROZEN_PAUSES = """
  const { setTimeout } = window;
  window.setTimeout = (call, ms, ...rest) =>
    ms > 200 && ms < 900 ? 0 : setTimeout(call, ms, ...rest);
"""
"""The pause after the first try never ends by itself, as in a browser that sleeps."""

COME_BACK = "document.dispatchEvent(new Event('visibilitychange'))"
FROM_HISTORY = "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))"


def expect_state(page: Page, state: str) -> None:
    expect(page.locator("#main")).to_have_attribute("data-state", state, timeout=PATIENT_MS)


def expect_receipt(page: Page) -> None:
    page.wait_for_url("**/orders/*/", timeout=PATIENT_MS)


def busy(route: Route) -> None:
    route.fulfill(status=503, json={"code": "unavailable", "message": "Busy"})


def animation_of(page: Page, selector: str) -> str:
    script = "(it) => getComputedStyle(it).animationName"
    return str(page.locator(selector).evaluate(script))


# --- The last seconds and the bar ----------------------------------------------------------------


ANIMATIONS = {"no-preference": "beat", "reduce": "none"}


def test_last_ten_seconds_look_different(opened: Person) -> None:
    sale, buyer = make_sale(stock=5, begins_in_s=300), make_buyer()
    pages = {it: opened(sale, buyer, reduced_motion=it) for it in ANIMATIONS}
    ground = "(it) => getComputedStyle(it).backgroundColor"
    before = {it: pages[it].locator("#countdown").evaluate(ground) for it in pages}
    begin_in(sale, 11)
    for page in pages.values():
        page.reload()
    for motion, page in pages.items():
        expect(page.locator("#main")).to_have_attribute("data-final", "begin", timeout=PATIENT_MS)
        assert page.locator("#countdown").evaluate(ground) != before[motion]
        assert animation_of(page, "#countdown-left") == ANIMATIONS[motion]
    for page in pages.values():
        expect_state(page, "open")
        expect(page.locator("#main")).to_have_attribute("data-final", "")
        expect(page.locator("#status")).to_have_text("It's live. Press once.")


def test_card_in_its_last_ten_seconds_looks_different(people: Person) -> None:
    SeckillVoucher.objects.update(stage=SaleStage.DRAFT)
    sale, page = make_sale(stock=5, begins_in_s=300), people()
    run_first(page, IN_A_HURRY)
    page.goto("/")
    card = page.locator(".ticket--card")
    expect(card).to_have_attribute("data-final", "")
    begin_in(sale, 9)
    expect(card).to_have_attribute("data-final", "begin", timeout=PATIENT_MS)
    assert animation_of(page, ".ticket__left") == "beat"
    expect(card).to_have_attribute("data-sale-state", "open", timeout=PATIENT_MS)
    expect(card).to_have_attribute("data-final", "")


def test_bar_is_empty_until_something_is_gone(opened: Person) -> None:
    sale = make_sale(stock=4)
    page = opened(sale, make_buyer())
    expect(page.locator("#stock-words")).to_have_text("4 of 4 left")
    expect(page.locator("#stock")).to_have_js_property("value", 0)
    reserved(sale, make_buyers(3))
    expect(page.locator("#stock-words")).to_have_text("75% gone · 1 of 4 left")
    expect(page.locator("#stock")).to_have_js_property("value", 3)
    page.goto("/")
    card = page.locator(f"[data-live-url='/vouchers/{sale.pk}/live/']")
    expect(card.locator("[data-stock]")).to_have_text("75% gone · 1 of 4 left")
    expect(card.locator("meter")).to_have_js_property("value", 3)


def test_stock_in_words_agrees_with_the_server(opened: Person) -> None:
    page = opened(make_sale(stock=4), make_buyer())
    module = page.locator("link[href*='seckill/clock.']").get_attribute("href")
    stocks = [(None, 9), (9, 9), (999, 1_000), (3, 100), (1, 1_000), (0, 7), (0, 0)]
    told = page.evaluate(
        """async ([path, stocks]) => {
          const { stockText } = await import(path);
          const texts = JSON.parse(document.getElementById("sentences").textContent);
          return stocks.map(([remaining, total]) => stockText({ remaining, total }, texts));
        }""",
        [module, stocks],
    )
    with translation.override("en"):
        assert told == [stock_words(*stock) for stock in stocks]


# --- A shop that does not answer -----------------------------------------------------------------


def test_order_is_sent_once_the_device_is_online_again(opened: Person) -> None:
    page = opened(make_sale(stock=5), make_buyer(), script=FROZEN_PAUSES)
    page.context.set_offline(True)
    page.click("#buy")
    expect_state(page, "offline")
    expect(page.locator("#buy-label")).to_have_text("Offline, waiting…")
    expect(page.locator("#status")).to_contain_text("it sends your request once you are connected")
    page.context.set_offline(False)
    expect_receipt(page)


def test_order_is_sent_once_the_page_is_seen_again(opened: Person) -> None:
    page = opened(make_sale(stock=5), make_buyer(), script=FROZEN_PAUSES)
    page.route(ORDERS, cut)
    page.click("#buy")
    expect_state(page, "unreachable")
    page.unroute(ORDERS)
    page.wait_for_timeout(1500)  # the control: without the event nothing is sent
    expect_state(page, "unreachable")
    page.evaluate(COME_BACK)
    expect_receipt(page)


def test_order_is_sent_once_polling_recovers(opened: Person) -> None:
    page = opened(make_sale(stock=5), make_buyer(), script=FROZEN_PAUSES)
    failed: list[Route] = []

    def count_and_cut(route: Route) -> None:
        failed.append(route)
        route.abort()

    page.route(LIVE, count_and_cut)
    page.route(ORDERS, cut)
    page.click("#buy")
    expect_state(page, "unreachable")
    while not failed:  # until the test's own timeout
        page.wait_for_timeout(20)
    page.unroute_all()
    expect_receipt(page)


def test_order_survives_a_stopped_server(opened: Person, module_stack: Stack) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    first = module_stack.web(workers=1, threads=4)
    page = opened(sale)
    sign_in(page.context, buyer, url=first.url)
    page.goto(f"{first.url}/vouchers/{sale.pk}/")
    expect(page.locator("#sign-out")).to_be_visible()
    first.stop()
    page.click("#buy")
    expect_state(page, "unreachable")
    expect(page.locator("#status")).to_contain_text("The shop cannot be reached.")
    module_stack.web(workers=1, threads=4, port=first.port)
    expect_receipt(page)


def test_busy_shop_is_told_apart(opened: Person) -> None:
    page = opened(make_sale(stock=5), make_buyer(), script=IN_A_HURRY)
    page.route(LIVE, busy)
    expect(page.locator("#connection")).to_contain_text("The shop is very busy")
    expect(page.locator("#connection")).to_contain_text(re.compile(r"Last updated \d+ s ago\."))
    page.route(ORDERS, busy)
    page.click("#buy")
    expect_state(page, "busy")
    expect(page.locator("#connection")).to_be_hidden()  # the button says it
    page.unroute_all()
    expect_receipt(page)


@pytest.mark.parametrize(
    ("path", "locale", "offline", "unreachable"),
    [
        ("/", "en-GB", "You are offline.", "The shop cannot be reached right now."),
        ("/vouchers/{}/", "zh-CN", "网络已断开", "暂时无法连接"),
    ],
)
def test_stale_page_says_so_until_the_shop_answers(
    people: Person, path: str, locale: str, offline: str, unreachable: str
) -> None:
    sale = make_sale(stock=5)
    page = people(make_buyer(), locale=locale)
    run_first(page, IN_A_HURRY)
    page.goto(path.format(sale.pk))
    told = page.locator("#connection")
    expect(page.locator("#sign-out")).to_be_visible()
    expect(told).to_be_hidden()
    page.context.set_offline(True)
    expect(told).to_contain_text(offline)
    page.context.set_offline(False)
    expect(told).to_be_hidden(timeout=PATIENT_MS)
    page.route(LIVE, cut)
    expect(told).to_contain_text(unreachable, timeout=PATIENT_MS)
    page.unroute_all()
    expect(told).to_be_hidden(timeout=PATIENT_MS)


def test_list_from_the_history_is_refreshed(people: Person) -> None:
    SeckillVoucher.objects.update(stage=SaleStage.DRAFT)
    sale = make_sale(stock=2)
    page = people()
    page.goto("/")
    words = page.locator("[data-stock]")
    expect(words).to_have_text("2 of 2 left")
    page.wait_for_load_state("networkidle")
    reserved(sale, make_buyers(2))
    page.evaluate(FROM_HISTORY)
    expect(words).to_have_text("100% gone · 0 of 2 left")
    expect(page.locator("[data-badge]")).to_have_text("Sold out")


# --- Paused and sold out -------------------------------------------------------------------------


@pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])
def test_paused_sale_without_stock_offers_the_waiting_list(people: Person, script: bool) -> None:
    sale = make_sale(stock=1)
    reserved(sale, [make_buyer()])
    change(sale, paused=True)
    page = people(make_buyer(), java_script_enabled=script)
    path = f"/vouchers/{sale.pk}/" if script else f"/vouchers/{sale.pk}/form/"
    page.goto(path)
    expect(page.locator(".status").first).to_contain_text("paused, and sold out for now")
    page.get_by_role("button", name="Join the waiting list").click()
    expect(page.locator("#heading")).to_have_text("You are next in line")
    page.goto(path)
    expect(page.get_by_role("link", name="See your place in line")).to_be_visible()


def test_paused_sale_with_stock_offers_no_waiting_list(opened: Person) -> None:
    sale = make_sale(stock=1)
    change(sale, paused=True)
    page = opened(sale, make_buyer())
    expect_state(page, "paused")
    expect(page.locator("#line")).to_be_hidden()


# --- A refusal -----------------------------------------------------------------------------------


def test_reason_of_a_refusal_survives_reload_and_return(opened: Person, web: Web) -> None:
    sale, (ann, ben) = make_sale(stock=1), make_buyers(2)
    page = opened(sale, ann)
    keep_from_hearing(page)
    reserved(sale, [make_buyer()])
    page.click("#buy")
    why = re.compile(r"^Your request arrived at .* The last voucher went at .* earlier\.$")
    told = page.locator("#status")
    expect(told).to_have_text(why)
    text = told.text_content() or ""
    page.unroute_all()
    page.reload()
    expect(told).to_have_text(text)
    page.goto("/")
    page.go_back()
    expect(told).to_have_text(text)

    sign_in(page.context, ben, url=web.url)
    page.reload()
    expect(page.locator("#sign-out")).to_have_attribute("title", ben.username)
    expect(told).to_contain_text("Sold out.")


def test_reason_is_over_once_there_is_stock_again(opened: Person) -> None:
    sale = make_sale(stock=1)
    page = opened(sale, make_buyer())
    keep_from_hearing(page)
    reserved(sale, [make_buyer()])
    page.click("#buy")
    expect(page.locator("#status")).to_contain_text("Your request arrived at")
    change(sale, stock=2)
    page.unroute_all()
    page.reload()
    expect(page.locator("#status")).to_have_text("It's live. Press once.")
    time.sleep(SOLD_OUT_TTL_S)  # until then a process may repeat "sold out" to a first attempt
    page.click("#buy")
    expect_receipt(page)


# --- Without JavaScript --------------------------------------------------------------------------


def sales_by_state() -> dict[str, SeckillVoucher]:
    """Return a sale in each state, none of whose units are the buyer's."""
    sales = {
        "scheduled": make_sale(stock=2, begins_in_s=7_200, ends_in_s=9_000),
        "soon": make_sale(stock=2, begins_in_s=600, ends_in_s=1_200),
        "open": make_sale(stock=2),
        "sold_out": make_sale(stock=1),
        "paused": make_sale(stock=2),
        "paused_sold_out": make_sale(stock=1),
        "ended": make_sale(stock=2, begins_in_s=-60),
    }
    change(sales["ended"], ends_at=timezone.now())
    for name in ("sold_out", "paused_sold_out"):
        reserved(sales[name], [make_buyer()])
    for name in ("paused", "paused_sold_out"):
        change(sales[name], paused=True)
    return sales


PLAIN = {
    # state: (words, the enabled button, the ways on)
    "scheduled": ("Reload this page when the sale has started", "", {"Reload"}),
    "soon": ("This page reloads by itself when the sale starts", "", set()),
    "open": ("It's live. Press once.", "Buy now", set()),
    "sold_out": ("Sold out. If one frees up", "Join the waiting list", {"Reload"}),
    "paused": ("The sale is paused. Reload this page", "", {"Reload"}),
    "paused_sold_out": ("paused, and sold out for now", "Join the waiting list", {"Reload"}),
    "ended": ("This sale has ended.", "", {"See the sales"}),
}
"""What a buyer without an order reads."""


def test_page_without_javascript_does_not_contradict_itself(people: Person) -> None:
    page = people(make_buyer(), java_script_enabled=False)
    for name, sale in sales_by_state().items():
        words, button, ways = PLAIN[name]
        page.goto(f"/vouchers/{sale.pk}/form/")
        bar = page.locator(".bar")
        expect(bar.locator(".status").first, name).to_contain_text(words)
        enabled = [it.inner_text() for it in bar.locator("button:enabled:visible").all()]
        assert enabled == [button] * bool(button), name
        assert {it.inner_text() for it in bar.locator("a:visible").all()} == ways, name
        reloads = page.locator("meta[http-equiv=refresh]").count()
        assert reloads == (name == "soon"), name

        page.goto(f"/vouchers/{sale.pk}/")
        links = {it.inner_text() for it in bar.locator("a:visible").all()}
        on = {"open": "Buy without JavaScript", "ended": "See the sales"}
        assert links == {on.get(name, "Continue without JavaScript")}, name


def test_visitor_without_javascript_is_led_to_the_sign_in(people: Person) -> None:
    page = people(java_script_enabled=False)
    for name, sale in sales_by_state().items():
        page.goto(f"/vouchers/{sale.pk}/form/")
        bar = page.locator(".bar")
        links = {it.inner_text() for it in bar.locator("a:visible").all()}
        signs_in = any("Sign in" in it for it in links)
        assert signs_in == (name not in ("paused", "ended")), (name, links)
        assert bar.locator("button:visible").count() == 0, name


def test_owner_without_javascript_reads_of_no_timer(people: Person) -> None:
    sale, buyer = make_sale(stock=2), make_buyer()
    reserved(sale, [buyer])
    page = people(buyer, java_script_enabled=False)
    page.goto(f"/vouchers/{sale.pk}/form/")
    status = page.locator(".bar .status").first
    expect(status).to_have_text(
        "Your place is reserved. Your order's page shows it as soon as it is ready."
    )
    expect(page.locator(".button--order")).to_have_text("See your order")
    expect(page.locator(".bar button:enabled:visible")).to_have_count(0)
