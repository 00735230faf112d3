"""My orders in a browser: the countdown on a card, and the way to pay."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from orders.models import VoucherOrder
from tests.browser.conftest import Person, make_person, put_on_sale
from tests.support.payments import make_unpaid_order

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("row_locks")]


def test_card_counts_down_and_pays(person: Person) -> None:
    buyer = make_person("gus")
    order = make_unpaid_order(put_on_sale(), [buyer])
    page = person(buyer)
    page.goto("/orders/")
    button = page.locator(".order__action button")
    expect(button).to_contain_text("Pay ¥1.00")
    expect(page.locator("[data-left]")).to_contain_text(":")
    button.click()
    page.wait_for_url("**/sandbox/**")
    assert order.payments.count() == 1


def test_card_whose_time_runs_out_offers_no_payment(person: Person) -> None:
    buyer = make_person("hal")
    order = make_unpaid_order(put_on_sale(), [buyer])
    page = person(buyer)
    page.clock.install()
    page.goto("/orders/")
    expect(page.locator("[data-left]")).to_be_visible()
    page.clock.fast_forward("01:00:00")
    expect(page.locator(".order__action")).to_have_count(0)
    expect(page.locator(".order .badge")).to_have_text("The time to pay has run out")
    assert VoucherOrder.objects.get(pk=order.pk).status == "unpaid"
