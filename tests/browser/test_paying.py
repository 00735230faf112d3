"""The receipt while money is under way, in browsers. No worker runs: the tests ask the provider."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from orders.lifecycle.redemption import written_code
from orders.models import VoucherOrder
from orders.payments.confirmation import confirm_payments
from orders.payments.providers import ProviderUnavailable
from orders.payments.refunds import finish_refunds
from orders.payments.sandbox import Sandbox
from orders.receipts.payment_state import SETTLE_FOR
from seckill_site.process_memory import forget_everything
from tests.browser.conftest import Person, make_person
from tests.concurrency.sales import make_sale
from tests.support.payments import make_unpaid_order, receipt_url

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("row_locks")]

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DESK = {"viewport": {"width": 1280, "height": 900}}
LARGEST_SHIFT = 0.05

WATCH_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""

Turn = tuple[Page, VoucherOrder]


def pay(page: Page, choice: str) -> None:
    """Pay in the sandbox, and come back to the receipt."""
    page.click("#pay")
    page.wait_for_url("**/sandbox/*/")
    page.click(f"[name=choice][value={choice}]")
    page.wait_for_url("**/orders/*/")


def to_the_receipt(people: Person, **options: Any) -> Turn:
    """Give a buyer an order to pay, and open its receipt."""
    user = make_person("ann")
    order = make_unpaid_order(make_sale(stock=1), [user])
    page = people(user, **options)
    page.goto(receipt_url(order))
    return page, order


def ask_the_provider(order: VoucherOrder) -> None:
    confirm_payments(order_id=order.pk, now=timezone.now() + SETTLE_FOR)


def expect_status(page: Page, status: str) -> None:
    expect(page.locator("#receipt")).to_have_attribute("data-status", status)


def expect_the_code(page: Page, order: VoucherOrder) -> None:
    expect_status(page, "paid")
    order.refresh_from_db()
    expect(page.locator("#code")).to_have_text(written_code(order.code or ""))


@pytest.mark.parametrize("screen", [PHONE, DESK], ids=["phone", "desk"])
def test_code_takes_its_place_without_moving_anything(
    people: Person, screen: dict[str, Any]
) -> None:
    page, order = to_the_receipt(people, **screen)
    page.add_init_script(WATCH_SHIFTS)
    pay(page, "never")
    expect(page.locator("#heading")).to_have_text("Paid, confirming…")
    assert not page.locator("#pay, .confirm form").count()
    page.evaluate("window.neverReloaded = true")

    ask_the_provider(order)
    expect_the_code(page, order)
    assert page.evaluate("window.neverReloaded")
    assert page.evaluate("window.shift") <= LARGEST_SHIFT


@pytest.mark.parametrize("screen", [PHONE, DESK], ids=["phone", "desk"])
def test_return_without_payment_brings_pay_back(people: Person, screen: dict[str, Any]) -> None:
    page, order = to_the_receipt(people, **screen)
    page.add_init_script(WATCH_SHIFTS)
    page.click("#pay")
    page.wait_for_url("**/sandbox/*/")
    page.goto(f"{receipt_url(order)}return/")  # as from a link of the provider, or by hand
    assert page.url.endswith(receipt_url(order))
    expect_status(page, "confirming")

    ask_the_provider(order)
    expect(page.locator("#heading")).to_have_text("Not paid yet")
    expect(page.locator("#pay")).to_be_visible()
    assert page.evaluate("window.shift") <= LARGEST_SHIFT
    pay(page, "never")
    expect_status(page, "confirming")
    ask_the_provider(order)
    expect_the_code(page, order)


def test_silent_provider_is_named_until_it_answers(
    people: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, order = to_the_receipt(people)
    pay(page, "never")

    def no_answer(*_: object) -> None:
        raise ProviderUnavailable("by the test")

    with monkeypatch.context() as silence:
        silence.setattr(Sandbox, "query", no_answer)
        ask_the_provider(order)
    expect(page.locator("#text")).to_contain_text("is not answering")
    assert not page.locator("#pay").count()
    forget_everything()  # its pause is over
    ask_the_provider(order)
    expect_the_code(page, order)


def test_every_open_tab_follows_the_payment(people: Person) -> None:
    first, order = to_the_receipt(people)
    second = first.context.new_page()
    second.goto(first.url)
    second.evaluate("window.neverReloaded = true")
    first.bring_to_front()
    pay(first, "never")
    expect_status(second, "confirming")
    expect(second.locator("#pay")).to_have_count(0)
    ask_the_provider(order)
    for tab in (first, second):
        tab.bring_to_front()
        expect_the_code(tab, order)
    assert second.evaluate("window.neverReloaded")


def test_money_for_a_cancelled_order_is_shown_going_back(people: Person) -> None:
    first, order = to_the_receipt(people)
    second = first.context.new_page()
    second.goto(first.url)
    first.bring_to_front()
    first.click("#pay")
    first.wait_for_url("**/sandbox/*/")
    second.bring_to_front()
    second.get_by_text("Cancel this order", exact=True).click()
    second.get_by_role("button", name="Yes, cancel it").click()
    expect_status(second, "cancelled")
    expect(second.locator("#late")).to_contain_text("Do not pay")
    first.bring_to_front()
    first.click("[name=choice][value=never]")
    first.wait_for_url("**/orders/*/")
    for tab in (first, second):
        expect(tab.locator("#late")).to_contain_text("If you paid, you get a refund")

    ask_the_provider(order)
    finish_refunds(now=timezone.now() + SETTLE_FOR)
    for tab in (first, second):
        tab.bring_to_front()
        expect(tab.locator("#heading")).to_have_text("Refunded")
        expect(tab.locator("#late")).to_contain_text("It has been refunded")


def test_phone_without_network_learns_of_it_when_back(people: Person) -> None:
    page, order = to_the_receipt(people, **PHONE)
    pay(page, "never")
    expect_status(page, "confirming")
    page.context.set_offline(True)
    expect(page.locator("#note")).to_contain_text("cannot be reached")
    ask_the_provider(order)
    page.context.set_offline(False)
    expect_the_code(page, order)


def test_page_without_javascript_refreshes_itself(people: Person) -> None:
    page, order = to_the_receipt(people, java_script_enabled=False)
    pay(page, "never")
    expect(page.locator("#heading")).to_have_text("Paid, confirming…")
    assert not page.locator("#pay").count()
    ask_the_provider(order)
    expect_the_code(page, order)


def test_code_is_copied_shown_large_and_saved(people: Person) -> None:
    page, order = to_the_receipt(people, **PHONE, permissions=["clipboard-read", "clipboard-write"])
    pay(page, "never")
    ask_the_provider(order)
    expect_the_code(page, order)
    code = written_code(order.code or "")

    page.get_by_role("button", name="Copy code").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == code
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save picture").click()
    assert saved.value.suggested_filename == f"voucher-{order.pk}.png"

    page.goto("/orders/")
    expect(page.locator(".order .badge").first).to_have_text("Ready to use")
    page.get_by_role("link", name="Show code").first.click()
    page.wait_for_url(re.compile(r"/code/$"))
    expect(page.locator("#code")).to_have_text(code)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator(".qr").bounding_box()
    assert box
    assert box["width"] >= 300
    VoucherOrder.objects.filter(pk=order.pk).update(status="used")
    page.wait_for_url(f"**{receipt_url(order)}")  # used at the counter: the page leaves by itself
    expect(page.locator("#heading")).to_have_text("Used")


def test_receipt_prints_code_without_buttons(people: Person) -> None:
    page, order = to_the_receipt(people)
    pay(page, "never")
    ask_the_provider(order)
    expect_the_code(page, order)
    page.emulate_media(media="print")
    expect(page.locator("#code")).to_be_visible()
    expect(page.locator(".qr")).to_be_visible()
    for hidden in (".top", ".foot", ".code__actions", ".confirm", ".actions"):
        expect(page.locator(hidden).first).to_be_hidden()
