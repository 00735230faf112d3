"""Codes without network: kept on the device of one account, as long as it is signed in there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Error, Page, expect

from orders.models import OrderStatus, VoucherOrder
from tests.browser.conftest import PHONE, Person, make_person, sign_in
from tests.concurrency.sales import make_sale
from tests.support.orders import make_order
from tests.support.patience import MOMENT_S, eventually, wait_for
from tests.support.payments import receipt_url
from tests.support.stack import Web

pytestmark = pytest.mark.browser

CODES = "/orders/codes/"
IS_KEPT = "async () => Boolean(await caches.match('/orders/codes/', { cacheName: 'codes' }))"
KEPT_TEXT = "async () => (await caches.match('/orders/codes/', { cacheName: 'codes' })).text()"

Keep = Callable[[str], Page]


def give_code(name: str, code: str) -> VoucherOrder:
    order = make_order(make_sale(stock=1), make_person(name), status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=order.pk).update(code=code)
    return order


@pytest.fixture
def keep(people: Person) -> Keep:
    """Call it with a name and a code for the phone of that buyer, which keeps the page of codes."""

    def kept(name: str) -> Page:
        page = people(make_person(name), **PHONE)
        page.goto(CODES)
        page.click("#keep")
        expect(page.locator("#forget")).to_be_visible()
        return page

    return kept


def wait_until_empty(page: Page) -> None:
    wait_for(lambda: not page.evaluate(IS_KEPT), what="an empty device")


def open_until(page: Page, path: str, is_done: Callable[[], bool], *, what: str) -> None:
    """Open a page until its contact with the shop has had an effect on the device.

    Where the shop is late, the device shows what it keeps, and nothing happens.
    """

    def opened() -> bool:
        page.goto(path)
        return eventually(is_done, within_s=MOMENT_S)

    wait_for(opened, what=what)


def expect_nothing_offline(page: Page) -> None:
    page.context.set_offline(True)
    with pytest.raises(Error, match="ERR_"):
        page.goto(CODES)


def test_kept_codes_open_without_network(keep: Keep) -> None:
    give_code("olga", "0FF1NE34EFGH5678")
    page = keep("olga")
    page.goto("/")
    # me/ has named the account: the same one.
    expect(page.locator("#sign-out")).to_have_attribute("title", "olga")

    page.context.set_offline(True)
    page.goto("/orders/")  # leads to what there is
    page.wait_for_url(f"**{CODES}")

    expect(page.locator(".card__text")).to_have_text("0FF1-NE34-EFGH-5678")
    expect(page.locator(".qr")).to_be_visible()
    expect(page.locator(".codes__kept")).to_be_visible()
    expect(page.locator(".codes__age")).to_contain_text("As of")
    styled = page.locator(".card").first.evaluate("it => getComputedStyle(it).textAlign")
    assert styled == "center", "the style sheet is kept, too"
    with page.expect_download():
        page.click("a[data-title]")  # and the scripts

    page.context.set_offline(False)
    page.goto(CODES)
    expect(page.locator(".codes__kept")).to_be_hidden()


@pytest.mark.slow
def test_nothing_is_kept_until_it_is_switched_on(people: Person) -> None:
    give_code("nora", "N0NE1234EFGH5678")
    page = people(make_person("nora"))
    page.goto(CODES)
    expect(page.locator("#keep")).to_be_visible()
    assert not page.evaluate(IS_KEPT)
    assert (
        page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
    )
    expect_nothing_offline(page)


@pytest.mark.slow
def test_worker_answers_for_orders_alone(keep: Keep) -> None:
    page = keep("olga")
    scopes = page.evaluate(
        "navigator.serviceWorker.getRegistrations().then((all) => all.map((it) => it.scope))"
    )
    assert [it.partition("//")[2].partition("/")[2] for it in scopes] == ["orders/"]
    page.goto("/")
    assert page.evaluate("navigator.serviceWorker.controller") is None


@pytest.mark.slow
def test_button_removes_the_codes(keep: Keep) -> None:
    page = keep("olga")
    page.click("#forget")
    expect(page.locator("#keep")).to_be_visible()
    assert not page.evaluate(IS_KEPT)
    expect_nothing_offline(page)


@pytest.mark.slow
def test_sign_out_empties_the_device(keep: Keep) -> None:
    page = keep("olga")
    page.goto("/accounts/profile/")  # a phone's header has no room for it
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.wait_for_url("**/")
    wait_until_empty(page)
    expect_nothing_offline(page)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/orders/", CODES])
def test_another_account_empties_the_device(keep: Keep, web: Web, path: str) -> None:
    page = keep("olga")
    sign_in(page.context, make_person("otto"), url=web.url)
    open_until(page, path, lambda: not page.evaluate(IS_KEPT), what="an empty device")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/orders/", CODES])
def test_session_that_ended_empties_the_device(keep: Keep, path: str) -> None:
    page = keep("olga")
    page.context.clear_cookies()
    open_until(page, path, lambda: not page.evaluate(IS_KEPT), what="an empty device")
    expect_nothing_offline(page)


@pytest.mark.slow
def test_address_without_its_slash_empties_nothing(keep: Keep) -> None:
    page = keep("olga")
    page.goto(CODES.rstrip("/"))
    page.wait_for_url(f"**{CODES}")
    page.reload()
    assert page.evaluate(IS_KEPT)


@pytest.mark.slow
def test_open_page_leads_to_the_login_after_a_401(keep: Keep) -> None:
    page = keep("olga")
    page.context.clear_cookies()
    page.evaluate("window.dispatchEvent(new Event('online'))")
    page.wait_for_url(f"**/accounts/login/?next={CODES}")
    assert not page.evaluate(IS_KEPT)


@pytest.mark.slow
@pytest.mark.parametrize("page_of", ["my orders", "codes", "receipt"])
def test_refund_removes_a_code_at_the_next_contact(keep: Keep, page_of: str) -> None:
    name = f"rita-{page_of[:2]}"
    start = page_of[:2].upper()
    order = give_code(name, f"{start}99GONE00000000")
    give_code(name, f"{start}99STAY00000000")
    page = keep(name)
    VoucherOrder.objects.filter(pk=order.pk).update(status=OrderStatus.REFUNDED, live=None)

    path = {"codes": CODES, "receipt": receipt_url(order)}.get(page_of, "/orders/")

    open_until(page, path, lambda: "-GONE-" not in page.evaluate(KEPT_TEXT), what="no such code")

    page.context.set_offline(True)
    page.goto(CODES)
    expect(page.get_by_text("-STAY-")).to_have_count(1)
    expect(page.get_by_text("-GONE-")).to_have_count(0)


@pytest.mark.slow
def test_open_page_drops_a_refunded_code_once_online(people: Person) -> None:
    order = give_code("rosa", "R0SA1234EFGH5678")
    page = people(make_person("rosa"))
    page.goto(CODES)
    expect(page.locator(".card")).to_have_count(1)
    VoucherOrder.objects.filter(pk=order.pk).update(status=OrderStatus.REFUNDED, live=None)
    page.evaluate("window.dispatchEvent(new Event('online'))")
    expect(page.locator(".card")).to_have_count(0)
