"""After the order, in browsers: payment, cancellation, expiry and the waiting list."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.redemption import written_code
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderStatus, VoucherOrder, WaitingEntry
from tests.browser.conftest import PASSWORD, PHONE, Person, make_person, sign_in_by_form
from tests.concurrency.sales import assert_the_sum_is_right, make_sale, wait_until_quiet
from tests.fixtures.processes import on_both_ways
from tests.support.orders import make_order, reserved
from tests.support.patience import wait_for
from tests.support.stack import Web
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]


def signed_in(people: Person, name: str, **options: object) -> Page:
    return people(make_person(name), **options)


def buy(page: Page, sale: SeckillVoucher, *, path: str = "") -> VoucherOrder:
    """Buy and stay on the receipt, which shows the unpaid order."""
    page.goto(f"/vouchers/{sale.pk}/{path}")
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url("**/orders/*/")
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")
    return VoucherOrder.objects.get(pk=page.url.rstrip("/").rpartition("/")[2])


def confirm(page: Page, question: str, answer: str) -> None:
    page.get_by_text(question, exact=True).click()
    page.get_by_role("button", name=answer).click()


def is_paid(order: VoucherOrder) -> bool:
    return VoucherOrder.objects.filter(pk=order.pk, status=OrderStatus.PAID).exists()


def expect_the_code(page: Page, order: VoucherOrder) -> None:
    expect(page.locator("#receipt")).to_have_attribute("data-status", "paid")
    order.refresh_from_db()
    assert order.code
    expect(page.locator("#code")).to_have_text(written_code(order.code))
    expect(page.locator(".code__picture .qr")).to_be_visible()


def test_open_receipt_shows_payment_and_refund_without_reload(people: Person) -> None:
    sale = make_sale(stock=1)
    page = signed_in(people, "ann", **PHONE)
    order = buy(page, sale)
    page.evaluate("window.neverReloaded = true")
    second = page.context.new_page()
    second.goto(page.url)
    expect(second.locator("#pay-left")).to_have_text(re.compile(r"^1[45]:\d\d$"))
    second.click("#pay")
    second.wait_for_url("**/sandbox/*/")
    second.click("[name=choice][value=twice]")
    second.wait_for_url("**/orders/*/")
    page.bring_to_front()

    expect_the_code(page, order)
    assert page.evaluate("window.neverReloaded")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not page.locator("#pay").count()

    confirm(page, "Request a refund", "Yes, refund it")
    expect(page.locator("#heading")).to_have_text("Refunded")
    assert not page.locator("#code").count()
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=0)


@pytest.mark.parametrize(("choice", "within_s"), [("pay", 3), ("never", 5)])
def test_code_comes_within_seconds_of_the_return(
    people: Person, choice: str, within_s: int
) -> None:
    """The best of some, because the machine may stand still."""
    best_ms = within_s * 10_000.0
    for number in range(8):
        page = signed_in(people, f"payer {number}", **PHONE)
        order = buy(page, make_sale(stock=1))
        page.click("#pay")
        page.wait_for_url("**/sandbox/*/")
        page.click(f"[name=choice][value={choice}]")
        page.wait_for_url("**/orders/*/")
        expect_the_code(page, order)
        best_ms = min(best_ms, page.evaluate("performance.now()"))  # since the page was asked for
        if best_ms <= within_s * 1000:
            break
    assert best_ms <= within_s * 1000


def test_cancelled_unit_goes_to_the_waiting_buyer(people: Person) -> None:
    sale = make_sale(stock=1)
    ann, ben = (signed_in(people, name) for name in ("ann", "ben"))
    ben.goto(f"/vouchers/{sale.pk}/")
    expect(ben.locator("#line")).to_be_hidden()
    buy(ann, sale)
    expect(ben.locator("#buy-label")).to_have_text("Sold out")

    ben.get_by_role("button", name="Join the waiting list").click()
    ben.wait_for_url("**/waiting/")
    expect(ben.locator("#heading")).to_have_text("You are next in line")
    expect(ben.locator("#place")).to_have_text("1")
    confirm(ann, "Cancel this order", "Yes, cancel it")
    expect(ann.locator("#heading")).to_have_text("Cancelled")

    ben.wait_for_url("**/orders/*/")
    expect(ben.locator("#receipt")).to_have_attribute("data-status", "unpaid")
    expect(ben.locator("#pay")).to_be_enabled()
    owner = VoucherOrder.objects.get(seckill_voucher=sale, live=True).user
    assert owner
    assert owner.username == "ben"
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=1)


def test_open_receipt_shows_that_the_order_expired(people: Person) -> None:
    sale = make_sale(stock=1)
    page = signed_in(people, "ann")
    order = buy(page, sale)
    soon = timezone.now() + dt.timedelta(seconds=20)
    VoucherOrder.objects.filter(pk=order.pk).update(pay_by=soon)
    page.reload()
    expect(page.locator("#pay-left")).to_have_text(re.compile(r"^00:[0-2]\d$"))

    expect(page.locator("#heading")).to_have_text("Order closed: not paid in time")
    expect(page.locator("#doing")).to_be_empty()
    expect(page.get_by_role("link", name="Back to the sale")).to_be_visible()
    order.refresh_from_db()
    assert order.status == OrderStatus.EXPIRED
    wait_for(lambda: snapshot(sale_id=sale.pk).remaining == 1, what="the unit in the ledger")
    assert_the_sum_is_right(sale, ordered=0)


def test_turn_while_offline_leads_to_the_order_later(people: Person) -> None:
    sale = make_sale(stock=1)
    ann, ben = (signed_in(people, name) for name in ("ann", "ben"))
    order = buy(ann, sale)
    ben.goto(f"/vouchers/{sale.pk}/")
    ben.get_by_role("button", name="Join the waiting list").click()
    expect(ben.locator("#heading")).to_have_text("You are next in line")

    ben.context.set_offline(True)
    cancel_order(order_id=order.pk, by=SYSTEM, now=timezone.now())
    expect(ben.locator("#note")).to_contain_text("You are offline.")
    entries = WaitingEntry.objects.filter(
        seckill_voucher=sale, outcome=WaitingEntry.Outcome.OFFERED
    )
    wait_for(entries.exists, what="the end of the entry")
    ben.context.set_offline(False)

    ben.wait_for_url("**/orders/*/")
    expect(ben.locator("#receipt")).to_have_attribute("data-status", "unpaid")


@pytest.mark.parametrize("script", [True, False])
def test_buyer_waits_for_several_and_is_led_to_what_came(people: Person, script: bool) -> None:
    sale = make_sale(stock=2, limit=6)
    reserved(sale, [make_person(name) for name in ("ann", "amy")])
    wait_until_quiet(sale)
    ben = signed_in(people, "ben", **PHONE, java_script_enabled=script)
    ben.goto(f"/vouchers/{sale.pk}/" if script else f"/vouchers/{sale.pk}/form/")
    ben.get_by_label("How many to wait for").fill("3")
    ben.get_by_label("If several").select_option("One after the other")
    ben.get_by_role("button", name="Join the waiting list").click()
    ben.wait_for_url("**/waiting/")
    expect(ben.locator("#wanted")).to_contain_text("You are waiting for 3 vouchers.")
    order = VoucherOrder.objects.filter(seckill_voucher=sale).earliest("pk")
    cancel_order(order_id=order.pk, by=SYSTEM, now=timezone.now())
    if not script:
        ben.reload()
    text = re.compile("You have 1 of your 3 vouchers")
    expect(ben.locator("#wanted")).to_have_text(text)
    expect(ben.locator("#heading")).to_have_text("You are next in line")
    assert ben.evaluate("document.documentElement.scrollWidth") <= 360
    ben.get_by_role("link", name="See your order").click()
    ben.wait_for_url("**/orders/*/")


def test_paying_and_waiting_work_without_javascript(people: Person) -> None:
    sale = make_sale(stock=1)
    make_person("plain ann", password=PASSWORD)
    ann, ben = (
        people(java_script_enabled=False),
        signed_in(people, "ben", java_script_enabled=False),
    )
    sign_in_by_form(ann, "plain ann")
    order = buy(ann, sale, path="form/")
    ben.goto(f"/vouchers/{sale.pk}/form/")
    ben.click("text=Join the waiting list")
    expect(ben.locator("#heading")).to_have_text("You are next in line")

    ann.click("#pay")
    ann.click("[name=choice][value=pay]")
    ann.wait_for_url("**/orders/*/")
    wait_for(lambda: is_paid(order), what="a paid order")
    ann.reload()
    expect_the_code(ann, order)
    confirm(ann, "Request a refund", "Yes, refund it")

    bens = VoucherOrder.objects.filter(seckill_voucher=sale, user__username="ben")
    wait_for(bens.exists, what="an order")
    ben.goto(f"/vouchers/{sale.pk}/form/")
    ben.get_by_role("link", name="It's yours! Pay by").click()
    expect(ben.locator("#pay")).to_be_visible()


@on_both_ways
def test_buyer_signs_in_and_pays_at_the_own_address(people: Person, served: Web) -> None:
    buyer = make_person("payer", password=PASSWORD)
    order = make_order(make_sale(stock=1), buyer)
    page = people()
    sign_in_by_form(page, "payer")
    page.goto(f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/")
    page.click("#pay")
    page.wait_for_url(f"{served.url}/sandbox/**")
    page.click("button[value=pay]")
    page.wait_for_url(f"{served.url}/vouchers/**")
    expect(page.locator("#code")).to_be_visible()


def test_token_is_kept_for_its_receipt_alone(people: Person) -> None:
    """Loaded again, the page of an order that the ledger has lost can still be told so."""
    sale, page = make_sale(stock=1), people(make_person("keeper"))
    page.goto(f"/vouchers/{sale.pk}/")
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url("**/orders/*/")
    (cookie,) = [it for it in page.context.cookies(page.url) if it["name"] == "purchase-token"]
    assert page.url.endswith(cookie["path"])
    assert cookie["value"].startswith(page.url.split("/")[-2])
