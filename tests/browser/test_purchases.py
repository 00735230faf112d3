"""Several vouchers in one press: the stepper of the sale's page, and the receipt of all of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from orders.lifecycle.invitations import import_codes
from orders.lifecycle.redemption import redeem, written_code
from orders.lifecycle.transitions import SYSTEM
from orders.models import VoucherOrder
from seckill_site.clocks.database import database_now
from tests.browser.conftest import PHONE, Person, make_person
from tests.browser.test_accessibility import findings
from tests.concurrency.sales import assert_the_sum_is_right, make_sale, wait_until_quiet
from tests.support.orders import make_buyer, make_buyers, reserved_purchase, written_orders
from tests.support.payments import pay_all
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("row_locks", "workers")]

RECEIPT = re.compile(r"/orders/\d+/(\?.*)?$")
NARROW = {**PHONE, "viewport": {"width": 390, "height": 844}}


def orders_of(sale: SeckillVoucher) -> list[VoucherOrder]:
    return list(VoucherOrder.objects.filter(seckill_voucher=sale).order_by("pk"))


def choose(page: Page, quantity: int) -> None:
    page.fill("#quantity-number", str(quantity))
    page.keyboard.press("Tab")


def press(page: Page, label: str) -> None:
    page.get_by_role("button", name=label).click()
    page.wait_for_url(RECEIPT)
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")


def test_three_in_one_press_are_used_and_refunded_alone(people: Person) -> None:
    sale = make_sale(stock=10, limit=6)
    page = people(make_person("ann"), **NARROW)
    page.goto(f"/vouchers/{sale.pk}/")
    page.click("#more")
    page.click("#more")
    price = sale.voucher.price_cents
    press(page, f"Buy 3 for ¥{3 * price / 100:.2f}")
    expect(page.locator("#pay")).to_contain_text("for 3 vouchers")
    orders = orders_of(sale)
    assert len(orders) == 3

    page.click("#pay")
    page.wait_for_url("**/sandbox/*/")
    expect(page.locator("main")).to_contain_text(f"¥{3 * price / 100:.2f}")
    page.click("[name=choice][value=pay]")
    page.wait_for_url(RECEIPT)
    expect(page.locator("#receipt")).to_have_attribute("data-status", "paid")
    codes = [written_code(it.code or "") for it in orders_of(sale)]
    units = page.locator("#units > details")
    for unit, code in enumerate(codes):
        expect(units.nth(unit)).to_contain_text(code)
    redeem(code=codes[0], by=SYSTEM, now=database_now())
    page.reload()
    expect(units.nth(0)).to_contain_text("Used")
    units.nth(2).locator("summary").first.click()
    units.nth(2).get_by_text("Request a refund").click()
    units.nth(2).get_by_role("button", name="Yes, refund it").click()
    page.wait_for_url(RECEIPT)
    expect(units.nth(2)).not_to_contain_text(codes[2])
    expect(units.nth(1)).to_contain_text(codes[1])
    wait_until_quiet(sale)
    states = [it.status for it in orders_of(sale)]
    assert states[:2] == ["used", "paid"]
    assert states[2] in ("refunding", "refunded")
    page.goto(f"/vouchers/{sale.pk}/")  # where nobody buys three again by mistake
    expect(page.locator("#quantity-number")).to_be_enabled()
    expect(page.locator("#quantity-number")).to_have_value("1")


@pytest.mark.slow
def test_stepper_follows_keys_and_buttons_and_says_the_price(people: Person) -> None:
    sale = make_sale(stock=10, limit=3)
    page = people(make_person("ben"))
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#quantity-total")).to_have_text("Up to 3 in one order.")
    expect(page.locator("#quantity-choice")).to_be_hidden()
    field, more = (
        page.locator("#quantity-number").bounding_box(),
        page.locator("#more").bounding_box(),
    )
    assert field
    assert more
    assert field["x"] + field["width"] <= more["x"], "the button covers the field"
    page.focus("#quantity-number")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    expect(page.locator("#quantity-total")).to_contain_text("2 × ")
    expect(page.locator("#quantity-choice")).to_be_visible()
    choose(page, 9)
    expect(page.locator("#quantity-number")).to_have_value("3")
    expect(page.locator("#more")).to_have_attribute("aria-disabled", "true")
    page.reload()
    expect(page.locator("#buy-label")).to_contain_text("Buy 3 for ")
    for _ in range(2):
        page.click("#fewer")
    expect(page.locator("#buy-label")).to_have_text("Buy now")


@pytest.mark.slow
@pytest.mark.parametrize("terms", [{}, {"limit": 3, "first_order_only": True}])
def test_sale_that_gives_one_has_no_stepper(people: Person, terms: dict[str, Any]) -> None:
    page = people(make_person("ben"))
    page.goto(f"/vouchers/{make_sale(stock=3, **terms).pk}/")
    expect(page.locator("#buy-label")).to_have_text("Buy now")
    assert not page.locator("#quantity").count()


@pytest.mark.slow
def test_stepper_goes_to_what_the_limit_leaves(people: Person) -> None:
    sale, buyer = make_sale(stock=10, limit=4), make_buyer()
    written_orders(sale, [buyer])
    page = people(buyer)
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#quantity-total")).to_have_text("Up to 3 in one order.")
    written_orders(sale, [buyer, buyer])
    page.reload()
    expect(page.locator("#buy-label")).to_have_text("Buy now")
    expect(page.locator("#quantity")).to_be_hidden()


@pytest.mark.slow
def test_all_or_none_is_refused_and_tells_what_is_left(people: Person) -> None:
    sale = make_sale(stock=2, limit=4)
    page = people(make_person("cora"))
    page.goto(f"/vouchers/{sale.pk}/")
    choose(page, 3)
    page.get_by_label("All or none").check()
    page.click("#buy")
    expect(page.locator("#status")).to_contain_text("Fewer are left than you want: 2.")
    expect(page.get_by_role("button", name="Join the waiting list")).to_be_visible()
    expect(page.get_by_label("How many to wait for")).to_have_value("3")
    page.get_by_label("Take what is left").check()
    page.click("#buy")
    page.wait_for_url(RECEIPT)
    expect(page.locator("#partly")).to_contain_text("You got 2 of the 3 you wanted")
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=2)


@pytest.mark.slow
def test_several_are_bought_and_cancelled_without_javascript(people: Person) -> None:
    sale = make_sale(stock=10, limit=4)
    page = people(make_person("dan"), java_script_enabled=False)
    page.goto(f"/vouchers/{sale.pk}/form/")
    page.select_option("#quantity-number", "2")
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url(RECEIPT)
    wait_until_quiet(sale)
    page.reload()
    expect(page.locator("#quantity")).to_have_text("2")
    page.get_by_text("Cancel this order", exact=True).click()
    page.get_by_role("button", name="Yes, cancel it").click()
    expect(page.locator("#receipt")).to_have_attribute("data-status", "cancelled")
    assert [it.status for it in orders_of(sale)] == ["cancelled"] * 2


@pytest.mark.slow
def test_each_further_voucher_takes_another_invitation_code(people: Person) -> None:
    sale = make_sale(stock=10, limit=3, needs_code=True)
    import_codes(sale_id=sale.pk, lines=["WELCOME1", "WELCOME2"])
    page = people(make_person("eve"))
    page.goto(f"/vouchers/{sale.pk}/")
    for code in ("WELCOME1", "WELCOME2"):
        page.fill("#code", code)
        page.keyboard.press("Enter")
        expect(page.locator("#buy-label")).to_have_text("Buy now")
        expect(page.locator("#quantity-codes")).to_be_visible()
    choose(page, 2)
    press(page, "Buy 2 for ")
    assert [it.status for it in orders_of(sale)] == ["unpaid"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("size", [NARROW, {}], ids=["phone", "desk"])
def test_pages_of_a_purchase_are_accessible(
    people: Person, locale: str, size: dict[str, object]
) -> None:
    sale, (buyer,) = make_sale(stock=10, limit=4), make_buyers(1)
    page = people(buyer, locale=locale, **size)
    page.goto(f"/vouchers/{sale.pk}/")
    page.click("#more")
    expect(page.locator("#quantity-choice")).to_be_visible()
    assert findings(page, inject=True) == set()
    ids = reserved_purchase(sale, buyer, 3)
    wait_until_quiet(sale)
    pay_all(VoucherOrder.objects.filter(pk__in=ids))
    for address in (f"/vouchers/{sale.pk}/orders/{ids[0]}/", "/orders/", "/orders/codes/"):
        page.goto(address)
        assert findings(page, inject=True) == set()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
