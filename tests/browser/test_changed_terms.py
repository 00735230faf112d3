"""An open page whose sale changes: it takes the change over, and says what has changed."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Page, Route, expect

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.waiting_list import join
from orders.models import VoucherOrder
from tests.browser.conftest import PHONE, Person, change, run_first
from tests.browser.test_button import module
from tests.concurrency.sales import DETAILS, make_sale
from tests.support.inspection import pending_ids
from tests.support.orders import make_buyer, token_for, written_orders
from tests.support.patience import wait_for
from tests.support.sales import redis_now_ms
from vouchers.catalogue.prices import once_at_rest
from vouchers.catalogue.sales import VoucherDetails, edit_sale, terms_of
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("row_locks")]

AT_ONCE = "Math.random = () => 0;"
"""The page's turn comes first."""

LATE, TURN_MS = "Math.random = () => 0.99;", 13_000
"""The page's turn comes last, and is over after this time."""


def raise_price(sale: SeckillVoucher, cents: int = 150) -> None:
    voucher = sale.voucher
    details = VoucherDetails(voucher.title, voucher.rules, cents, voucher.face_value_cents)
    once_at_rest(lambda: edit_sale(sale_id=sale.pk, terms=terms_of(sale), details=details))


def told_later(page: Page, sale: SeckillVoucher, change: Callable[[], object]) -> None:
    """Change a sale, and wait until the server tells pages of it, which keeps answers a second."""
    url = urljoin(page.url, f"/vouchers/{sale.pk}/live/")

    def revision() -> str:
        told: str = page.context.request.get(url).json()["revision"]
        return told

    before = revision()
    change()
    wait_for(lambda: revision() != before, what="the new revision")


def price(page: Page) -> Any:
    return page.locator("[data-term=price]")


@pytest.mark.slow
def test_open_page_takes_a_new_price_over_and_says_so(opened: Person) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    page = opened(sale, buyer, script=AT_ONCE)
    expect(price(page)).to_have_text("¥1.00")

    raise_price(sale)

    expect(page.locator("#changed")).to_have_text("The price is now ¥1.50.")
    expect(price(page)).to_have_text("¥1.50")
    page.locator("#buy").click()
    page.wait_for_url("**/orders/*/")
    fulfil_sale(sale_id=sale.pk)
    assert VoucherOrder.objects.get(seckill_voucher=sale).price_cents == 150


@pytest.mark.slow
def test_press_at_an_old_price_buys_nothing_and_shows_the_new(opened: Person) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    page = opened(sale, buyer, script=LATE, viewport=PHONE["viewport"])
    raise_price(sale)

    page.locator("#buy").click()

    expect(page.locator("#changed")).to_have_text("The price is now ¥1.50.")
    expect(price(page)).to_have_text("¥1.50")
    assert pending_ids(sale) == []
    expect(page.locator("#buy-label")).to_have_text("Buy now")
    expect(page.locator("#buy")).to_be_in_viewport()
    page.locator("#buy").click()
    page.wait_for_url("**/orders/*/")
    assert len(pending_ids(sale)) == 1


@pytest.mark.slow
def test_press_asks_again_if_a_server_still_had_the_old_page(opened: Person) -> None:
    sale, buyer = make_sale(stock=5), make_buyer()
    page = opened(sale, buyer, script=LATE, viewport=PHONE["viewport"])
    old, asked = page.context.request.get(page.url).text(), []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(body=old, content_type="text/html")
        else:
            route.continue_()

    page.route(page.url, answer)
    raise_price(sale)

    page.locator("#buy").click()

    expect(price(page)).to_have_text("¥1.50")
    assert len(asked) == 2


@pytest.mark.slow
def test_token_at_another_price_than_the_page_is_not_sent(opened: Person) -> None:
    """The page is older than the answer of me/, so the server would sell at a price not shown."""
    sale, buyer = make_sale(stock=5), make_buyer()

    def with_a_new_price(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        about = body.get("sale", body)
        if about.get("token"):
            about["token"] = about["token"].partition("~")[0] + "~p150"
        route.fulfill(response=answer, json=body)

    page = opened(sale, buyer, script=LATE)
    sent: list[str] = []
    page.route(re.compile("/(me|token)/"), with_a_new_price)
    page.on("request", lambda it: sent.append(it.url) if it.method == "POST" else None)
    page.reload()
    expect(page.locator("#sign-out")).to_be_visible()

    page.locator("#buy").click()

    expect(page.locator("#changed")).to_have_text("The price has changed. Check it before you buy.")
    assert sent == []
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_scheduled_page_notices_an_earlier_start_within_its_minute(people: Person) -> None:
    sale, page = make_sale(stock=5, begins_in_s=3_600, ends_in_s=7_200), people()
    run_first(page, AT_ONCE)
    page.clock.install()
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#countdown-left")).to_contain_text("00:59")
    earlier = sale.begins_at - dt.timedelta(minutes=30)
    told_later(page, sale, lambda: change(sale, begins_at=earlier))

    page.clock.run_for(46_000)

    expect(page.locator("#changed")).to_contain_text("The start is now")
    expect(page.locator("#countdown-left")).to_contain_text("00:2")


@pytest.mark.slow
def test_rules_limit_and_audience_are_named(opened: Person) -> None:
    sale = make_sale(stock=5)
    page = opened(sale, script=AT_ONCE)
    terms = replace(terms_of(sale), limit=2, needs_contact=True)
    details = replace(DETAILS, rules="Book a day ahead.")
    edit_sale(sale_id=sale.pk, terms=terms, details=details)  # all in one answer of the shop

    said = page.locator("#changed")
    expect(said).to_contain_text("Per buyer: now up to 2 vouchers.")
    expect(said).to_contain_text("The rules have changed.")
    expect(said).to_contain_text("Who can buy has changed.")
    expect(page.locator(".details")).to_contain_text("Book a day ahead.")


@pytest.mark.slow
@pytest.mark.parametrize(("random", "pace_ms", "turn_ms"), [
    (0, 0, 2_000), (0.5, 0, 7_000), (1, 0, 12_000), (1, 30_000, 32_000),
])  # fmt: skip
def test_crowd_takes_turns_to_take_a_change_over(
    opened: Person, random: float, pace_ms: int, turn_ms: int
) -> None:
    page = opened(make_sale(stock=1))
    ask = "async ([path, asked]) => (await import(path)).turnMs(asked)"
    asked = {"random": random, "paceMs": pace_ms}
    assert page.evaluate(ask, [module(page, "terms"), asked]) == turn_ms


@pytest.mark.slow
@pytest.mark.parametrize("random", [0, 0.5, 0.99])
def test_scheduled_page_asks_every_minute(opened: Person, random: float) -> None:
    page = opened(make_sale(stock=1))
    ask = "async ([path, asked]) => (await import(path)).pollMs(asked)"
    asked = {"state": "scheduled", "sale": "scheduled", "leftToBeginMs": 7_200_000}
    asked["random"] = random
    found = page.evaluate(ask, [module(page, "purchase_states"), asked])
    assert 48_000 <= found <= 72_000


@pytest.mark.slow
def test_answer_of_a_late_server_does_not_turn_the_page_back(opened: Person) -> None:
    sale = make_sale(stock=5)
    page = opened(sale, script=LATE)
    pages: list[str] = []
    page.on("request", lambda it: pages.append(it.url) if it.url.endswith(f"/{sale.pk}/") else None)
    answers: list[str] = []

    def once_late(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        answers.append(body["revision"])
        late = {"revision": "another"} if len(answers) == 1 else {}
        route.fulfill(response=answer, json={**body, **late})

    page.route("**/live/", once_late)
    while not answers:
        page.wait_for_timeout(20)
    page.wait_for_timeout(TURN_MS)

    assert pages == []
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.slow
def test_card_in_the_list_takes_a_new_price_over(people: Person) -> None:
    sale, page = make_sale(stock=5), people()
    page.goto("/")
    card = page.locator(f"[data-live-url$='/{sale.pk}/live/']")
    card.scroll_into_view_if_needed()
    expect(card.locator("[data-left]")).to_be_visible()

    raise_price(sale)
    page.evaluate("window.dispatchEvent(new Event('online'))")

    expect(card.locator(".price")).to_contain_text("¥1.50")
    expect(card.locator("[data-left]")).to_be_visible()


@pytest.mark.slow
def test_waiting_page_takes_a_new_price_over(people: Person) -> None:
    sale, buyer = make_sale(stock=1), make_buyer()
    written_orders(sale, [make_buyer()])
    token = token_for(sale, buyer).sign()
    join(token_text=token, sale_id=sale.pk, user_id=buyer.pk, now_ms=redis_now_ms())
    page = people(buyer)
    page.clock.install()
    page.goto(f"/vouchers/{sale.pk}/waiting/")
    expect(page.locator(".next")).to_contain_text("to pay ¥1.00")
    with page.expect_response("**/live/"):
        page.clock.run_for(5_000)

    told_later(page, sale, lambda: raise_price(sale))

    for _ in range(60):
        with page.expect_response("**/waiting/"):
            page.clock.run_for(5_000)
        if "¥1.50" in page.locator(".next").inner_text():
            break
    expect(page.locator(".next")).to_contain_text("to pay ¥1.50")
    expect(page.locator(".facts")).to_contain_text("¥1.50")
