"""The button of the purchase page in every state.

There is no worker: a test writes the orders itself, so the queue stands still until then.
"""

from __future__ import annotations

import datetime as dt
import re
import time

import pytest
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM
from orders.models import VoucherOrder
from seckill_site.clocks.machine import epoch_ms
from tests.browser.conftest import (
    IN_A_HURRY,
    NO_LIMITS,
    PHONE,
    Person,
    begin_in,
    change,
    keep_from_hearing,
    sign_in,
)
from tests.concurrency.sales import make_sale
from tests.support.inspection import pending_ids
from tests.support.orders import make_buyer, make_buyers, pending, reserved, written_orders
from tests.support.patience import wait_for
from tests.support.payments import pay
from tests.support.stack import Web
from vouchers.inventory.reservations import confirm
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("row_locks")]

ORDERS = "**/orders/"
ROUNDING_MS = 2
FIFTEEN_MINUTES = r"1[45]:\d\d"

SHIFTED = """
  const RealDate = Date;
  const shiftMs = %d * 60000;
  window.Date = class extends RealDate {
    constructor(...parts) {
      if (parts.length) super(...parts);
      else super(RealDate.now() + shiftMs);
    }
    static now() { return RealDate.now() + shiftMs; }
  };
"""
"""A buyer's own clock that is so many minutes wrong."""


WATCHED = """() => {
  const page = document.getElementById("main");
  const watch = () => {
    if (page.dataset.state === "open") {
      window.openedAtMs ??= performance.timeOrigin + performance.now();
    }
  };
  new MutationObserver(watch).observe(page, { attributes: true });
  watch();
}"""
"""Note when the button opens, by the machine's clock, which is the shop's as well."""


def second_tab(page: Page) -> Page:
    other = page.context.new_page()
    other.goto(page.url)
    other.evaluate("window.neverReloaded = true")
    return other


def expect_state(page: Page, state: str, label: str, beside: str = "") -> None:
    """Expect a state of the button, its label, and a pattern for the text beside it."""
    expect(page.locator("#main")).to_have_attribute("data-state", state)
    name = "order" if state == "yours" else "buy"
    expect(page.locator(f"#{name}-label")).to_have_text(label)
    expect(page.locator(f"#{name}-left")).to_have_text(re.compile(f"^{beside}$"))


def expect_receipt(page: Page, status: str = "queued") -> None:
    page.wait_for_url("**/orders/*/")
    expect(page.locator("#receipt")).to_have_attribute("data-status", status)


def notify_from_another_tab(page: Page) -> None:
    """Send the message by which another tab of the browser announces a change."""
    page.evaluate(
        "new BroadcastChannel(`seckill-${document.querySelector('[data-sale]').dataset.sale}`)"
        ".postMessage('changed')"
    )


def only_order(sale: SeckillVoucher) -> VoucherOrder:
    return VoucherOrder.objects.get(seckill_voucher=sale)


# --- Before the win ------------------------------------------------------------------------------


def test_button_opens_by_the_servers_clock_never_early(opened: Person) -> None:
    sale = make_sale(stock=5, begins_in_s=300)
    visitor = opened(sale)
    pages = [opened(sale, make_buyer(), script=SHIFTED % minutes) for minutes in (-10, 0, 10)]
    begins_at = begin_in(sale, 25)
    for page in (visitor, *pages):
        page.reload()
    for page in pages:
        page.evaluate(WATCHED)
        expect_state(page, "scheduled", "Starts in", r"00:00:[0-2]\d")
        expect(page.locator("#buy")).to_have_attribute("aria-disabled", "true")
    expect(visitor.locator("#sign-in")).to_have_text("Sign in to buy")

    for page in pages:
        expect(page.locator("#buy-label")).to_have_text("Buy now")
        assert page.evaluate("openedAtMs") >= epoch_ms(begins_at) - ROUNDING_MS
    expect(visitor.locator("#main")).to_have_attribute("data-state", "sign_in_open")
    visitor.click("#sign-in")
    visitor.wait_for_url(f"**/accounts/login/?next=/vouchers/{sale.pk}/")

    pages[0].click("#buy")
    expect_receipt(pages[0])
    fulfil_sale(sale_id=sale.pk)
    expect(pages[0].locator("#pay-left")).to_have_text(re.compile(FIFTEEN_MINUTES))


def test_button_follows_pause_resume_and_end(opened: Person) -> None:
    sale = make_sale(stock=5)
    page = opened(sale, make_buyer(), script=IN_A_HURRY)
    expect_state(page, "open", "Buy now")
    change(sale, paused=True)
    expect_state(page, "paused", "Sale paused")
    expect(page.locator("#status")).to_contain_text("becomes active again when it resumes")
    change(sale, paused=False)
    expect_state(page, "open", "Buy now")
    change(sale, ends_at=timezone.now())
    expect_state(page, "ended", "Sale ended")
    page.get_by_role("link", name="See the sales").click()
    page.wait_for_url("**/")


def test_late_buyer_learns_by_how_much_and_may_wait(opened: Person) -> None:
    sale = make_sale(stock=1)
    page = opened(sale, make_buyer(), **PHONE)
    keep_from_hearing(page)
    expect_state(page, "open", "Buy now")
    reserved(sale, [make_buyer()])
    page.tap("#buy")
    expect_state(page, "sold_out", "Sold out")
    time = r"\d\d:\d\d:\d\d\.\d\d\d"
    expect(page.locator("#status")).to_have_text(
        re.compile(
            rf"^Your request arrived at {time}\. The last voucher went at {time}, .* earlier\.$"
        )
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360

    page.unroute("**/live/")
    page.get_by_role("button", name="Join the waiting list").tap()
    expect(page.locator("#heading")).to_have_text("You are next in line")
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.get_by_role("link", name="See your place in line")).to_be_visible()


# --- The running request -------------------------------------------------------------------------


def test_busy_shop_is_asked_again_and_gets_one_order(opened: Person) -> None:
    sale = make_sale(stock=5)
    page = opened(sale, make_buyer(), script=NO_LIMITS)
    held: list[Route] = []
    page.route(ORDERS, lambda route: held.append(route))
    page.click("#buy")
    expect_state(page, "sending", "Sending…")
    refusal = {"code": "unavailable", "message": "Busy"}
    held.pop().fulfill(status=503, json=refusal, headers={"Retry-After": "0"})
    expect_state(page, "busy", "Busy, trying again…")
    while not held:  # until the test's own timeout
        page.wait_for_timeout(20)
    held.pop().continue_()
    page.unroute(ORDERS)

    expect_receipt(page)
    assert len(pending_ids(sale)) == 1


def test_page_finds_its_order_after_a_lost_answer(opened: Person) -> None:
    sale = make_sale(stock=5)
    page = opened(sale, make_buyer(), script=IN_A_HURRY)

    def accept_and_cut(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route(ORDERS, accept_and_cut)
    page.click("#buy")

    expect_receipt(page)
    assert page.url.endswith(f"/orders/{pending_ids(sale)[0]}/")
    assert len(pending_ids(sale)) == 1


def test_request_is_repeated_until_it_arrives(opened: Person) -> None:
    """Many more times than the quick ones, with one token and one press."""
    sale = make_sale(stock=5)
    page = opened(sale, make_buyer(), script=IN_A_HURRY)
    order_id = page.input_value("#token").partition("-")[0]
    sent: list[Route] = []

    def count_and_cut(route: Route) -> None:
        sent.append(route)
        route.abort()

    page.route(ORDERS, count_and_cut)
    page.click("#buy")
    expect_state(page, "unreachable", "No answer, retrying…")
    expect(page.locator("#status")).to_contain_text("it keeps trying, and never orders twice")
    while len(sent) < 8:  # until the test's own timeout
        page.wait_for_timeout(20)
    assert pending_ids(sale) == []

    page.unroute(ORDERS)
    expect_receipt(page)
    assert [str(each) for each in pending_ids(sale)] == [order_id]


def refuse(route: Route, *, status: int, code: str, retry_after_s: int | None = None) -> None:
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    route.fulfill(status=status, headers=headers, json={"code": code, "message": ""})


def test_limited_buyer_reads_when_to_try_again(opened: Person) -> None:
    page = opened(make_sale(stock=5), make_buyer())
    page.route(ORDERS, lambda it: refuse(it, status=429, code="rate_limited", retry_after_s=600))
    page.click("#buy")
    for _ in range(2):
        expect_state(page, "limited", "Try again in", r"(10:00|09:\d\d)")
        expect(page.locator("#buy")).to_have_attribute("aria-disabled", "true")
        expect(page.locator("#status")).to_contain_text("Too many orders came from")
        page.reload()


def test_page_that_can_order_nothing_more_offers_its_reload(opened: Person) -> None:
    page = opened(make_sale(stock=5), make_buyer())
    for path in (ORDERS, "**/token/"):
        page.route(path, lambda it: refuse(it, status=403, code="bad_token"))
    page.evaluate("window.neverReloaded = true")
    page.click("#buy")
    expect_state(page, "outdated", "Reload")
    expect(page.locator("#status")).to_contain_text("out of date")
    page.click("#buy")
    expect_state(page, "open", "Buy now")
    assert not page.evaluate("window.neverReloaded")


# --- The buyer's own orders ----------------------------------------------------------------------


def test_second_tab_follows_the_order_of_the_first(opened: Person) -> None:
    sale = make_sale(stock=9)
    reserved(sale, make_buyers(5))
    buyer = make_buyer()
    page = opened(sale, buyer)
    other = second_tab(page)
    page.bring_to_front()
    page.click("#buy")
    expect_receipt(page)
    expect(page.locator("#queue")).to_have_text("In the queue: number 6")

    expect_state(other, "queued", "In the queue", "number 6")
    expect(other.locator("#order-link")).to_have_attribute("href", re.compile(r"/orders/\d+/$"))
    confirm(sale_id=sale.pk, entries=pending(sale)[:3])
    moved = re.compile(r"number 3, about \d+ s$")
    expect(page.locator("#queue")).to_have_text(moved)
    expect(other.locator("#buy-left")).to_have_text(moved)

    fulfil_sale(sale_id=sale.pk)
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")
    expect_state(other, "yours", "It's yours! Pay within", FIFTEEN_MINUTES)
    expect(other.locator("#buy")).to_be_hidden()

    pay(VoucherOrder.objects.get(user=buyer))
    notify_from_another_tab(page)
    expect_state(other, "already_ordered", "You already have one")
    assert other.evaluate("window.neverReloaded")
    other.click("#order-link")
    expect_receipt(other, "paid")


def test_tab_without_broadcast_channel_learns_of_order_from_server(
    opened: Person,
) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    page = opened(sale, buyer, script="delete window.BroadcastChannel")
    (token,) = reserved(sale, [buyer])
    expect_state(page, "open", "Buy now")
    page.click("#buy")
    expect_state(page, "queued", "In the queue", "number 1")
    expect(page.locator("#order-link")).to_have_attribute(
        "href", f"/vouchers/{sale.pk}/orders/{token.order_id}/"
    )
    assert len(pending_ids(sale)) == 1


@pytest.mark.parametrize("back", ["by the history", "to a page that was kept"])
def test_going_back_from_the_receipt_shows_the_order(opened: Person, back: str) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    page = opened(sale, buyer)
    if back == "by the history":
        page.click("#buy")
        expect_receipt(page)
        page.go_back()
    else:
        reserved(sale, [buyer])
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect_state(page, "queued", "In the queue", "number 1")
    fulfil_sale(sale_id=sale.pk)
    expect_state(page, "yours", "It's yours! Pay within", FIFTEEN_MINUTES)
    page.reload()
    expect_state(page, "yours", "It's yours! Pay within", FIFTEEN_MINUTES)
    page.click("#order-link")
    expect_receipt(page, "unpaid")


def test_ended_order_stays_linked_and_buyer_may_buy_again(opened: Person) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    reserved(sale, [buyer])
    page = opened(sale, buyer)
    fulfil_sale(sale_id=sale.pk)
    expect_state(page, "yours", "It's yours! Pay within", FIFTEEN_MINUTES)
    cancel_order(order_id=only_order(sale).pk, by=SYSTEM, now=timezone.now())
    notify_from_another_tab(second_tab(page))
    expect_state(page, "open", "Buy now")
    expect(page.locator("#status")).to_contain_text("Your order is closed")
    expect(page.locator("#order-link")).to_have_text("See your order")

    page.click("#buy")
    expect_receipt(page)


def test_page_says_that_time_to_pay_has_run_out(opened: Person) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    SeckillVoucher.objects.filter(pk=sale.pk).update(pay_within_s=20)
    page = opened(sale, buyer)
    other = second_tab(page)
    written_orders(sale, [buyer])
    notify_from_another_tab(other)
    expect_state(page, "yours", "It's yours! Pay within", r"00:[0-2]\d")
    told = expect(page.locator("#status"))
    told.to_contain_text("The time to pay has run out")
    expect_state(page, "yours", "See your order")


def test_buyer_below_the_limit_buys_again_with_a_new_token(opened: Person) -> None:
    sale = make_sale(stock=5, limit=2)
    page = opened(sale, make_buyer())
    other = second_tab(page)
    page.click("#buy")
    expect_receipt(page)
    fulfil_sale(sale_id=sale.pk)
    expect_state(other, "open", "Buy now")
    expect(other.locator("#holds")).to_have_text("You have 1 of the 2 vouchers allowed per buyer.")
    expect(other.locator("#order-label")).to_have_text("Pay for yours within")

    other.click("#buy")
    expect_receipt(other)
    page.go_back()
    fulfil_sale(sale_id=sale.pk)
    expect_state(page, "yours", "It's yours! Pay within", FIFTEEN_MINUTES)
    assert VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count() == 2


def test_page_notices_sign_out_and_another_user(opened: Person, web: Web) -> None:
    sale, (ann, ben) = make_sale(stock=5), make_buyers(2)
    page = opened(sale, ann)
    anns_token = page.input_value("#token")
    page.context.clear_cookies()
    notify_from_another_tab(second_tab(page))
    expect_state(page, "sign_in_open", "Sign in to buy")
    expect(page.locator("#status")).to_contain_text("You have been signed out")

    sign_in(page.context, ben, url=web.url)
    notify_from_another_tab(second_tab(page))
    expect_state(page, "open", "Buy now")
    assert page.input_value("#token") != anns_token
    page.click("#buy")
    expect_receipt(page)
    fulfil_sale(sale_id=sale.pk)
    assert only_order(sale).user == ben


def test_queue_order_and_refusal_work_without_javascript(people: Person) -> None:
    sale = make_sale(stock=2)
    reserved(sale, [make_buyer()])
    ann, ben = (people(make_buyer(), java_script_enabled=False) for _ in range(2))
    for page in (ann, ben):
        page.goto(f"/vouchers/{sale.pk}/")
        page.get_by_role("link", name="Buy without JavaScript").click()
    ann.get_by_role("button", name="Buy now").click()
    expect_receipt(ann)
    expect(ann.locator("#queue")).to_have_text("In the queue: number 2")
    ben.get_by_role("button", name="Buy now").click()
    expect(ben.locator("main")).to_contain_text("The last voucher went at")
    ben.get_by_role("link", name="Back to the sale").click()
    further = ben.get_by_role("link", name="Continue without JavaScript")

    def is_newer() -> bool:
        ben.reload()
        return further.is_visible()

    wait_for(is_newer)  # the server keeps the page for a second
    further.click()
    expect(ben.get_by_role("button", name="Join the waiting list")).to_be_visible()

    fulfil_sale(sale_id=sale.pk)
    expect(ann.locator("#receipt")).to_have_attribute("data-status", "unpaid")  # by itself
    ann.goto(f"/vouchers/{sale.pk}/form/")
    ann.get_by_role("link", name="It's yours! Pay by").click()
    expect(ann.locator("#pay")).to_be_visible()


# --- Functions without a page --------------------------------------------------------------------


PLACES: list[tuple[list[tuple[int | None, int]], str]] = [
    ([], ""),
    ([(812, 0)], "number 812"),
    ([(812, 0), (812, 2_000)], "number 812"),
    ([(812, 0), (612, 2_000)], "number 612, about 7 s"),  # 100 a second
    ([(812, 0), (612, 2_000), (612, 4_000)], "number 612, about 15 s"),  # 50 a second
    ([(9_000, 0), (8_000, 20_000)], "number 8000"),  # too long ago
    ([(9_000, 0), (8_900, 10_000)], "number 8900, about 15 min"),
    ([(3, 0), (2, 100)], "number 2, about 1 s"),
    ([(5, 0), (4, 100), (700, 200)], "number 700"),  # lost and rebuilt
    ([(5, 0), (None, 100)], ""),
]
"""Places with their arrival in milliseconds, and the text for the last one."""

PACES = [
    ([], 300, 300),
    ([9, 8, 7], 300, 300),
    ([812], 812, 812),
    ([9, 9], 300, 600),
    ([9, 9, 9, 9, 9, 9], 300, 2_000),
    ([9, 9, 9, 8], 300, 300),
    ([None, None], 300, 1_000),
]
"""Places in their order of arrival, the pace of the server, and the page's pace."""

GONE_MS = [(0, "same millisecond"), (42, "42 ms"), (422, "0.4 s"), (59_999, "59.9 s"),
           (60_000, "1 min"), (7_200_000, "2 h"), (259_200_000, "3 d")]  # fmt: skip


def test_queue_and_lateness_texts_follow_the_answers(opened: Person) -> None:
    page = opened(make_sale(stock=1))
    page.evaluate(
        """async ([queue, why]) => {
          Object.assign(window, await import(queue), await import(why));
          window.texts = JSON.parse(document.getElementById("sentences").textContent);
        }""",
        [module(page, "queue"), module(page, "why")],
    )
    for places, words in PLACES:
        assert words == page.evaluate(
            """(places) => {
              const queue = new Queue();
              for (const [place, atMs] of places) queue.addSample({ place, atMs });
              return queue.text(texts.queue, "number");
            }""",
            places,
        )
    for heard, shop_ms, pace_ms in PACES:
        assert pace_ms == page.evaluate(
            """([heard, shopMs]) => {
              const queue = new Queue();
              for (const [atMs, place] of heard.entries()) queue.addSample({ place, atMs });
              return queue.paceMs(shopMs);
            }""",
            [heard, shop_ms],
        )
    arrived = dt.datetime(2026, 11, 21, 12, 0, 0, 7_000, tzinfo=dt.UTC)
    for before_ms, words in GONE_MS:
        assert words in late(page, arrived, before_ms)
    assert late(page, arrived, 422) == (
        "Your request arrived at 20:00:00.007. "
        "The last voucher went at 19:59:59.585, 0.4 s earlier."
    )
    assert "went at 18 Nov, 20:00:00.007, 3 d earlier" in late(page, arrived, 259_200_000)
    assert late(page, arrived, None) == (
        "Your request arrived at 20:00:00.007. No vouchers were left by then."
    )


@pytest.mark.parametrize(
    ("sale", "left_ms", "pace_ms", "latest_ms"),
    [
        ("scheduled", 50_000, 20_000, 20_000),
        ("scheduled", 12_000, 20_000, 7_000),  # everybody is known before the start
        ("scheduled", 3_000, 20_000, 0),
        ("scheduled", 50_000, 0, 0),
        ("open", -1_000, 20_000, 0),
    ],
)
def test_pages_of_a_crowd_take_turns_before_the_start(
    opened: Person, sale: str, left_ms: int, pace_ms: int, latest_ms: int
) -> None:
    page = opened(make_sale(stock=1))
    ask = """async ([path, asked]) => (await import(path)).meDelayMs(asked)"""
    asked = {"sale": sale, "leftToBeginMs": left_ms, "paceMs": pace_ms}
    delays = [
        page.evaluate(ask, [module(page, "purchase_states"), {**asked, "random": random}])
        for random in (0, 0.5, 1)
    ]
    assert delays == [0, latest_ms / 2, latest_ms]


def test_page_asks_who_is_there_at_the_pace_of_the_server(people: Person) -> None:
    sale, page = make_sale(stock=1, begins_in_s=120), people(make_buyer())
    page.add_init_script("Math.random = () => 0.5;")
    asked: list[float] = []
    page.on("request", lambda it: asked.append(time.monotonic()) if "/me/" in it.url else None)

    def with_a_crowd(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "me_pace_ms": 6_000})

    page.route("**/live/", with_a_crowd)
    began_at = time.monotonic()
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#sign-out")).to_be_visible()
    assert asked[0] - began_at >= 3


def module(page: Page, name: str) -> str:
    """Return the URL of a module of the page, which contains the hash of its content."""
    return str(page.locator(f"link[href*='seckill/{name}.']").get_attribute("href"))


def late(page: Page, arrived: dt.datetime, before_ms: int | None) -> str:
    """Return the text for a last unit that went this long before the request arrived."""
    arrived_ms = epoch_ms(arrived)
    refusal = {"arrived_at_ms": arrived_ms}
    if before_ms is not None:
        refusal["sold_out_at_ms"] = arrived_ms - before_ms
    return str(
        page.evaluate(
            "(refusal) => whySoldOut("
            "refusal, { texts: texts.why, lang: 'en', timeZone: 'Asia/Shanghai' })",
            refusal,
        )
    )
