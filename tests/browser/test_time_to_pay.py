"""The last minutes of the time to pay in a browser: what is announced, and how to get more."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from playwright.sync_api import Page, expect

from orders.models import VoucherOrder
from tests.browser.conftest import PHONE, Person, make_person, put_on_sale
from tests.support.payments import let_time_run_out, make_unpaid_order, receipt_url

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("row_locks")]

HEARD = """
  window.heard = [];
  addEventListener("DOMContentLoaded", () => {
    const watched = document.getElementById("announcement");
    new MutationObserver(() => heard.push(watched.textContent))
      .observe(watched, { childList: true, characterData: true, subtree: true });
  });
"""
"""Note what screen readers are told."""


def receipt_with(people: Person, seconds: float) -> tuple[Page, VoucherOrder]:
    """Open the receipt of an order with so many seconds left to pay."""
    user = make_person("ann")
    order = make_unpaid_order(put_on_sale(), [user])
    page = people(user, **PHONE)
    page.clock.install()
    page.add_init_script(HEARD)
    let_time_run_out(order, dt.timedelta(seconds=seconds))
    page.goto(receipt_url(order))
    expect(page.locator("#pay-left")).to_be_visible()
    return page, order


def run_until(page: Page, seconds: int) -> None:
    """Let the page's clock run, and nothing else, until so many seconds are left to pay."""
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 10)
    minutes, rest = map(int, page.locator("#pay-left").inner_text().split(":"))
    page.clock.run_for(1000 * (60 * minutes + rest - seconds))


def test_receipt_keeps_no_old_announcement(people: Person) -> None:
    page, _ = receipt_with(people, 90)
    run_until(page, 59)
    expect(page.locator("#announcement")).to_have_text("1 minute left to pay.")
    page.clock.run_for(5_000)
    expect(page.locator("#announcement")).to_be_empty()
    assert page.evaluate("heard").count("1 minute left to pay.") == 1


def test_buyer_takes_more_time_in_the_last_two_minutes(people: Person) -> None:
    page, order = receipt_with(people, 150)
    more = page.get_by_role("button", name="Take 10 more minutes")
    expect(more).to_be_hidden()
    run_until(page, 117)
    expect(more).to_be_visible()
    assert "Need longer? You can extend the time to pay once." in page.evaluate("heard")
    let_time_run_out(order, dt.timedelta(seconds=117))  # as on the page
    more.click()
    expect(page.locator(".deadline")).to_contain_text("extended")
    expect(page.locator("#pay-left")).to_have_text(re.compile(r"1[12]:\d\d"))
    expect(page.locator("#extend")).to_have_count(0)
