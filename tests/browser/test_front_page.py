"""The list of sales on a phone: pictures, long titles, passing days."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Person
from tests.support.patience import wait_for
from tests.support.photos import give_picture
from tests.support.sales import HOUR, make_sale, make_voucher
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.browser

LONG_TITLE = (
    "周末双人豪华海鲜自助晚餐代金券 Dinner-for-two-with-a-word-that-is-much-too-long 节假日通用"
)


@pytest.fixture
def phone(people: Person) -> Page:
    """A visitor's phone, and a shop without a sale so far."""
    SeckillVoucher.objects.update(stage=SaleStage.DRAFT)
    return people(timezone_id="Asia/Shanghai", **PHONE)


def open_list(phone: Page, *, sales: int) -> None:
    """Open the list once it shows so many sales: it may be a second old."""

    def is_new() -> bool:
        phone.goto("/")
        return phone.locator(".ticket--card").count() == sales

    wait_for(is_new, what=f"a list of {sales} sales")


def test_phone_shows_no_sale_and_many_sales(phone: Page) -> None:
    open_list(phone, sales=0)
    expect(phone.get_by_text("There are no sales right now.")).to_be_visible()

    for number in range(30):
        voucher = make_voucher(
            title=LONG_TITLE if number % 2 else f"Noodles {number}",
            price_cents=99_999_950,
            face_value_cents=100_000_000,
        )
        make_sale(voucher=voucher)
        if number < 3:
            give_picture(voucher, size=(400 + number, 900))

    open_list(phone, sales=30)
    assert phone.evaluate("document.documentElement.scrollWidth") == 360
    image = phone.locator(".ticket--card img").first
    image.scroll_into_view_if_needed()
    expect(image).to_have_js_property("complete", True)
    assert image.evaluate("it => it.naturalHeight") == 540
    for worth in phone.locator(".ticket__worth").all()[:4]:
        assert worth.evaluate("it => it.scrollWidth <= it.parentElement.clientWidth")


def test_today_becomes_a_date_after_midnight(phone: Page) -> None:
    now = timezone.now()
    make_sale(begins_at=now - HOUR, ends_at=now + 90 * HOUR)
    make_sale(begins_at=now + 80 * HOUR, ends_at=now + 90 * HOUR)
    phone.clock.install()
    open_list(phone, sales=2)
    shown = phone.locator(".when time:visible")
    dates = [time.get_attribute("data-date") or "" for time in shown.all()]
    assert len(dates) == 2
    assert not any(date in shown.all_inner_texts() for date in dates)

    phone.clock.fast_forward(25 * 3_600_000)

    expect(shown).to_have_text(dates)


@pytest.mark.slow
def test_search_shows_cards_as_one_types(phone: Page) -> None:
    for number in range(11):
        make_sale(voucher=make_voucher(title=f"Noodles {number}"))
    open_list(phone, sales=11)
    shown = phone.locator(".ticket--card:visible")
    phone.fill("#query", "NOODLES 7")
    expect(shown).to_have_count(1)
    phone.fill("#query", "tea")
    expect(shown).to_have_count(0)
    expect(phone.get_by_text("No sale has these words.")).to_be_visible()
    phone.fill("#query", "")
    expect(shown).to_have_count(11)


@pytest.mark.slow
def test_card_leads_to_its_reminder(phone: Page) -> None:
    now = timezone.now()
    sale = make_sale(begins_at=now + 2 * HOUR, ends_at=now + 3 * HOUR)
    open_list(phone, sales=1)
    link = phone.locator(".reminder:visible")
    expect(link).to_have_count(1)
    box = link.bounding_box()
    assert box
    assert box["height"] >= 44
    link.click()
    phone.wait_for_url(f"**/accounts/login/?next=/vouchers/{sale.pk}/notice/")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "says"),
    [("Asia/Shanghai", "none"), ("Asia/Singapore", "none"), ("Europe/Berlin", "(")],
)
def test_clock_names_its_zone_to_readers_elsewhere(people: Person, zone: str, says: str) -> None:
    now = timezone.now()
    sale = make_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)
    page = people(timezone_id=zone)
    page.goto(f"/vouchers/{sale.pk}/")
    after = "it => getComputedStyle(it, '::after').content"
    for clock in page.locator("time[data-zone]").all():
        content = clock.evaluate(after)
        assert content == "none" if says == "none" else "(UTC+8)" in content
    assert page.locator("time[data-zone]").count() >= 4
