"""Buyers in front of a waiting room, and staff who run it, in their browsers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from orders.placing.places import visitor_of
from orders.receipts.buyer_in_sale import find_buyer_in_sale
from tests.browser.conftest import make_person
from tests.support.orders import make_buyers
from tests.support.sales import make_voucher
from vouchers.catalogue.live_changes import close_room
from vouchers.catalogue.sales import SaleTerms, create_sale
from vouchers.models import RoomKind, SeckillVoucher

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("row_locks", "workers")]

PATIENT_MS = 30_000
HOUR = dt.timedelta(hours=1)
LARGEST_PAGE_BYTES = 15_000


def make_room(*, rate: int, kind: str = RoomKind.BUSY, begins_in_s: int = -60) -> SeckillVoucher:
    """Return an open sale of ten units with a waiting room."""
    begins_at = timezone.now() + dt.timedelta(seconds=begins_in_s)
    terms = SaleTerms(
        stock=10, begins_at=begins_at, ends_at=begins_at + HOUR, room=kind, room_rate=rate
    )
    return create_sale(voucher=make_voucher(title="Crab"), terms=terms)


def fill_line(sale: SeckillVoucher, *, count: int) -> None:
    """Let some visitors take the first places in line."""
    for buyer in make_buyers(count):
        visitor = visitor_of(sale_id=sale.pk, user_id=buyer.pk)
        find_buyer_in_sale(sale_id=sale.pk, user_id=buyer.pk, visitor=visitor)


def test_buyer_waits_in_line_and_buys_in_turn(people: Callable[..., Page]) -> None:
    sale = make_room(rate=1)
    fill_line(sale, count=6)
    page = people(make_person("ann"))

    page.goto(f"/vouchers/{sale.pk}/")

    expect(page).to_have_url(f"{page.url.partition('/vouchers')[0]}/vouchers/{sale.pk}/room/")
    expect(page.locator("#heading")).to_contain_text("in line", timeout=PATIENT_MS)
    expect(page.locator("#wait")).to_be_visible()
    expect(page.locator("#buy-label")).to_have_text("Buy now", timeout=PATIENT_MS)
    page.click("#buy")
    expect(page.locator("#heading")).to_have_text("It's yours!", timeout=PATIENT_MS)


def test_buyer_without_javascript_waits_and_buys(people: Callable[..., Page]) -> None:
    sale = make_room(rate=1)
    fill_line(sale, count=5)
    page = people(make_person("ben"), java_script_enabled=False)

    page.goto(f"/vouchers/{sale.pk}/room/")

    expect(page.locator("h1")).to_contain_text("in line", timeout=PATIENT_MS)
    expect(page.locator("#order-form button")).to_be_enabled(timeout=PATIENT_MS)
    page.click("#order-form button")
    expect(page.locator("#heading")).to_be_visible(timeout=PATIENT_MS)


def test_everybody_waits_for_the_start(people: Callable[..., Page]) -> None:
    sale = make_room(rate=1, kind=RoomKind.START, begins_in_s=8)
    page = people(make_person("cy"))

    page.goto(f"/vouchers/{sale.pk}/")

    expect(page.locator("#sale-state")).to_contain_text("not started", timeout=PATIENT_MS)
    expect(page.locator("#buy-label")).to_have_text("Buy now", timeout=PATIENT_MS)
    assert timezone.now() >= sale.begins_at


def test_visitor_is_told_to_sign_in(people: Callable[..., Page]) -> None:
    sale = make_room(rate=1)
    page = people()

    page.goto(f"/vouchers/{sale.pk}/room/")

    expect(page.locator("#heading")).to_contain_text("Sign in", timeout=PATIENT_MS)
    expect(page.locator("#sign-in")).to_be_visible()


def test_same_account_has_one_place_in_two_browsers(people: Callable[..., Page]) -> None:
    sale = make_room(rate=1, kind=RoomKind.START, begins_in_s=300)
    fill_line(sale, count=2)
    dee = make_person("dee")
    first, second = people(dee), people(dee)

    for page in (first, second):
        page.goto(f"/vouchers/{sale.pk}/room/")
        expect(page.locator("#heading")).to_contain_text("number 3", timeout=PATIENT_MS)


def test_page_in_line_goes_on_once_everybody_is_let_in(people: Callable[..., Page]) -> None:
    sale = make_room(rate=1)
    fill_line(sale, count=8)
    page = people(make_person("eve"))
    page.goto(f"/vouchers/{sale.pk}/room/")
    expect(page.locator("#heading")).to_contain_text("in line", timeout=PATIENT_MS)

    close_room(sale_id=sale.pk)

    expect(page.locator("#buy-label")).to_have_text("Buy now", timeout=PATIENT_MS)


def test_open_page_can_still_buy_when_the_room_opens(people: Callable[..., Page]) -> None:
    begins_at = timezone.now() - dt.timedelta(minutes=1)
    terms = SaleTerms(stock=10, begins_at=begins_at, ends_at=begins_at + HOUR)
    sale = create_sale(voucher=make_voucher(), terms=terms)
    page = people(make_person("fay"))
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#buy-label")).to_have_text("Buy now", timeout=PATIENT_MS)
    staff = people(make_person("boss", admin=True))

    staff.goto(f"/admin/vouchers/seckillvoucher/{sale.pk}/board/open-room/")
    staff.fill("#id_rate", "1")
    staff.click("text=Yes, open it")

    expect(staff.locator("[data-text=room]")).to_contain_text("let in per second")
    page.click("#buy")
    expect(page.locator("#heading")).to_have_text("It's yours!", timeout=PATIENT_MS)


@pytest.mark.parametrize("language", ["zh-CN", "en"])
def test_waiting_page_is_small(people: Callable[..., Page], language: str) -> None:
    sale = make_room(rate=1, kind=RoomKind.START, begins_in_s=300)
    page = people(make_person(f"gus-{language}"), locale=language)
    sizes: list[int] = []
    problems: list[str] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())))
    page.on("console", lambda message: problems.append(message.text))

    page.goto(f"/vouchers/{sale.pk}/room/")
    expect(page.locator("#main, #room")).to_have_attribute("data-turn", "waiting")

    assert sum(sizes) <= LARGEST_PAGE_BYTES, sizes
    assert not problems
