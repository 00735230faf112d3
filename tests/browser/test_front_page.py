"""The list of sales as a buyer sees it on a phone: pictures, long titles, days that go by."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from tests.support.photos import give_picture
from tests.support.sales import HOUR, make_sale, make_voucher
from tests.support.stack import Stack

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
LONG_TITLE = (
    "周末双人豪华海鲜自助晚餐代金券 Dinner-for-two-with-a-word-that-is-much-too-long 节假日通用"
)


@pytest.fixture
def phone(browser: Browser, stack: Stack) -> Iterator[Callable[[], Page]]:
    """Call it for a phone that is about to open the shop. No script may fail on it."""
    web, errors = stack.web(workers=1, threads=4), []
    context = browser.new_context(
        base_url=web.url, locale="en-GB", timezone_id="Asia/Shanghai", **PHONE
    )
    context.set_default_timeout(15_000)

    def page() -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield page
    context.close()
    assert errors == []


def test_a_phone_shows_no_sale_and_many_sales(phone: Callable[[], Page]) -> None:
    page = phone()
    page.goto("/")
    expect(page.get_by_text("There are no sales right now.")).to_be_visible()

    for number in range(30):
        voucher = make_voucher(
            title=LONG_TITLE if number % 2 else f"Noodles {number}",
            price_cents=99_999_950,
            face_value_cents=100_000_000,
        )
        make_sale(voucher=voucher)
        if number < 3:
            give_picture(voucher, size=(400 + number, 900))
    page.reload()

    expect(page.locator(".ticket--card")).to_have_count(30)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    image = page.locator(".ticket--card img").first
    image.scroll_into_view_if_needed()
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("it => it.naturalHeight") == 540
    for worth in page.locator(".ticket__worth").all()[:4]:
        assert worth.evaluate("it => it.scrollWidth <= it.parentElement.clientWidth")


def test_when_the_day_is_over_today_becomes_a_date(phone: Callable[[], Page]) -> None:
    now = timezone.now()
    make_sale(begins_at=now - HOUR, ends_at=now + 90 * HOUR)
    make_sale(begins_at=now + 80 * HOUR, ends_at=now + 90 * HOUR)
    page = phone()
    page.clock.install()
    page.goto("/")
    shown = page.locator(".when time:visible")
    dates = [time.get_attribute("data-date") for time in shown.all()]
    assert len(dates) == 2
    assert not any(date in shown.all_inner_texts() for date in dates)

    page.clock.fast_forward(dt.timedelta(hours=25).total_seconds() * 1000)

    expect(shown).to_have_text(dates)
