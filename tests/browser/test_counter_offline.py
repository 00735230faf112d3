"""The counter without the shop: its page stays, codes wait unchecked, and a press redeems once."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import Page, expect

from orders.lifecycle.redemption import written_code
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from tests.browser.conftest import PATIENT_MS, PHONE, Person, make_person, sign_in
from tests.support.orders import make_order, make_sale
from tests.support.patience import wait_for
from tests.support.stack import Web

pytestmark = pytest.mark.browser

PAGE = "/staff/redeem/"
IS_KEPT = "async () => Boolean(await caches.match('/staff/redeem/', { cacheName: 'counter' }))"
ONLINE = "Object.defineProperty(navigator, 'onLine', { get: () => true })"
"""A browser that believes to have a network: the shop itself does not answer."""

SEND_AND_LOSE = """
  async () => {
    const form = document.querySelector(".counter__voucher form");
    const body = new URLSearchParams(new FormData(form));
    await fetch(location.pathname, { method: "POST", body });
  }
"""
"""Press *Redeem now*, and lose the answer."""

_numbers = itertools.count(1)


@pytest.fixture
def voucher(db: None) -> VoucherOrder:
    """A paid order with a code of its own."""
    number = next(_numbers)
    order = make_order(make_sale(), make_person(f"away-{number}"), status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=order.pk).update(code=f"{number:0>8}{order.pk % 10**8:0>8}")
    order.refresh_from_db()
    return order


@pytest.fixture
def counter(people: Person) -> Page:
    """The page of a clerk, on a phone that keeps it."""
    page = people(make_person("clerk", admin=True), **PHONE)
    page.goto(PAGE)
    wait_for(lambda: page.evaluate(IS_KEPT), what="a kept page")
    return page


def enter(page: Page, code: str) -> None:
    page.fill("#code", code)
    page.press("#code", "Enter")


def code_of(order: VoucherOrder) -> str:
    return written_code(order.code or "")


def status_of(order: VoucherOrder) -> str:
    order.refresh_from_db()
    return order.status


def test_code_typed_offline_waits_for_shop_and_press(counter: Page, voucher: VoucherOrder) -> None:
    counter.context.set_offline(True)
    counter.goto(PAGE)
    expect(counter.locator("#kept")).to_be_visible()
    font = counter.locator("h1").evaluate("it => getComputedStyle(it).fontFamily")
    assert "system-ui" in font, "the style sheet is kept, too"

    enter(counter, code_of(voucher)[:-1])
    expect(counter.locator("#unchecked li")).to_have_count(0)
    enter(counter, code_of(voucher))
    waiting = counter.locator("#unchecked li")
    expect(waiting).to_contain_text(code_of(voucher))
    expect(waiting).to_contain_text("Unchecked")
    expect(counter.locator("#code")).to_have_value("")
    counter.reload()
    expect(waiting).to_contain_text("Unchecked")
    assert status_of(voucher) == OrderStatus.PAID

    counter.context.set_offline(False)
    expect(waiting).to_contain_text("Valid, not used yet", timeout=PATIENT_MS)
    expect(counter.locator("#kept")).to_be_hidden()
    assert status_of(voucher) == OrderStatus.PAID, "looked up, and no more"
    waiting.get_by_role("button", name="Check code").click()
    expect(counter.locator("[data-verdict=valid]")).to_be_visible()
    expect(counter.locator("#unchecked")).to_be_hidden()
    counter.get_by_role("button", name="Redeem now").click()
    expect(counter.locator("[data-verdict=redeemed]")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("has_arrived", [True, False])
def test_lost_answer_keeps_the_key_for_the_next_press(
    counter: Page, voucher: VoucherOrder, has_arrived: bool
) -> None:
    counter.add_init_script(ONLINE)
    counter.goto(PAGE)
    enter(counter, code_of(voucher))
    expect(counter.locator("[data-verdict=valid]")).to_be_visible()
    if has_arrived:
        counter.evaluate(SEND_AND_LOSE)
    counter.context.set_offline(True)
    counter.get_by_role("button", name="Redeem now").click()
    waiting = counter.locator("#unchecked li")
    expect(waiting).to_contain_text("Hand out nothing yet")
    expect(counter.locator("#kept")).to_be_visible()
    expect(counter.locator("[data-verdict]")).to_have_count(0)

    counter.context.set_offline(False)
    found = "You redeemed this at" if has_arrived else "Valid, not used yet"
    expect(waiting).to_contain_text(found, timeout=PATIENT_MS)
    waiting.get_by_role("button", name="Ask again" if has_arrived else "Redeem this code").click()
    verdict = "repeated" if has_arrived else "redeemed"
    expect(counter.locator(f"[data-verdict={verdict}]")).to_be_visible()
    expect(counter.locator("#unchecked")).to_be_hidden()
    assert OrderEvent.objects.filter(order=voucher, after="used").count() == 1


@pytest.mark.slow
def test_reload_after_a_lost_answer_repeats_the_key(counter: Page, voucher: VoucherOrder) -> None:
    counter.add_init_script(ONLINE)
    counter.goto(PAGE)
    enter(counter, code_of(voucher))
    expect(counter.locator("[data-verdict=valid]")).to_be_visible()
    counter.evaluate(SEND_AND_LOSE)
    counter.context.set_offline(True)
    counter.get_by_role("button", name="Redeem now").click()
    expect(counter.locator("#kept")).to_be_visible()
    counter.context.set_offline(False)
    counter.reload()
    expect(counter.locator("[data-verdict=repeated]")).to_be_visible()
    expect(counter.locator("#unchecked")).to_be_hidden()


@pytest.mark.slow
def test_new_session_discards_what_waits(counter: Page, voucher: VoucherOrder, served: Web) -> None:
    counter.context.set_offline(True)
    enter(counter, code_of(voucher))
    expect(counter.locator("#unchecked li")).to_have_count(1)
    sign_in(counter.context, make_person("clerk", admin=True), url=served.url)
    counter.context.set_offline(False)
    expect(counter.locator("#unchecked")).to_be_hidden(timeout=PATIENT_MS)
    counter.reload()
    expect(counter.locator("#unchecked")).to_be_hidden()
    assert code_of(voucher) not in str(counter.evaluate("JSON.stringify(sessionStorage)"))


@pytest.mark.slow
def test_ended_session_leads_to_the_sign_in(counter: Page, voucher: VoucherOrder) -> None:
    counter.context.set_offline(True)
    enter(counter, code_of(voucher))
    counter.context.clear_cookies()
    counter.context.set_offline(False)
    counter.wait_for_url("**/accounts/login/**")
    wait_for(lambda: not counter.evaluate(IS_KEPT), what="an empty device")


@pytest.mark.slow
def test_code_that_waits_can_be_removed(counter: Page, voucher: VoucherOrder) -> None:
    counter.context.set_offline(True)
    enter(counter, code_of(voucher))
    counter.get_by_role("button", name="Remove").click()
    expect(counter.locator("#unchecked")).to_be_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("where", [PAGE, "/staff/redemptions/"])
def test_undo_without_the_shop_stays_on_the_page(
    counter: Page, voucher: VoucherOrder, where: str
) -> None:
    enter(counter, code_of(voucher))
    counter.get_by_role("button", name="Redeem now").click()
    expect(counter.locator("[data-verdict=redeemed]")).to_be_visible()
    if where != PAGE:
        counter.goto(where)
    undo = counter.get_by_role("button", name="Undo").first
    counter.context.set_offline(True)
    undo.click()
    expect(counter.get_by_text("Nothing was undone yet; try again.")).to_be_visible()
    assert status_of(voucher) == OrderStatus.USED

    counter.context.set_offline(False)
    undo.click()
    expect(counter.locator("[data-verdict=undone]")).to_be_visible()
    assert status_of(voucher) == OrderStatus.PAID


@pytest.mark.slow
def test_wrong_code_stays_selected(counter: Page) -> None:
    enter(counter, "WRONG-CODE")
    expect(counter.locator("[data-verdict=no_such_code]")).to_be_visible()
    expect(counter.locator("#code")).to_have_value("WRONG-CODE")
    selected = "() => document.getElementById('code').selectionEnd"
    assert counter.evaluate(selected) == len("WRONG-CODE")
    counter.keyboard.type("0000")
    expect(counter.locator("#code")).to_have_value("0000")


@pytest.mark.slow
def test_worker_answers_for_the_counter_alone(counter: Page) -> None:
    scopes = counter.evaluate(
        "navigator.serviceWorker.getRegistrations().then((all) => all.map((it) => it.scope))"
    )
    assert [it.partition("//")[2].partition("/")[2] for it in scopes] == ["staff/redeem/"]
    counter.goto("/staff/redemptions/")
    assert counter.evaluate("navigator.serviceWorker.controller") is None
