"""The admin's form for a sale while it is edited."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Person, make_person
from tests.support.sales import HOUR, make_loaded_sale, make_voucher
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.browser

SALES = "/admin/vouchers/seckillvoucher/"


@pytest.fixture
def desk(people: Person) -> Page:
    """The page of the shop's superuser."""
    return people(make_person("shop", admin=True))


def hints(page: Page, field: str) -> Locator:
    return page.locator(f"#hints-{field} li")


def type_moment(page: Page, field: str, moment: dt.datetime) -> None:
    local = timezone.localtime(moment)
    page.fill(f"#id_{field}_0", f"{local:%Y-%m-%d}")
    page.fill(f"#id_{field}_1", f"{local:%H:%M:%S}")


@pytest.mark.slow
def test_hints_appear_beside_entries_and_are_announced(desk: Page) -> None:
    desk.goto(f"{SALES}add/")

    desk.fill("#id_stock", "1000")
    expect(hints(desk, "stock")).to_have_text("Stock 1,000 at limit 1: at least 1,000 buyers.")
    expect(desk.get_by_role("status")).to_contain_text("at least 1,000 buyers.")

    desk.get_by_text("Limit and pause").click()
    desk.fill("#id_limit", "2")
    expect(hints(desk, "stock")).to_have_text("Stock 1,000 at limit 2: at least 500 buyers.")
    assert "hints-stock" in (desk.get_attribute("#id_stock", "aria-describedby") or "")


@pytest.mark.slow
def test_errors_appear_only_after_leaving_a_field(desk: Page) -> None:
    desk.goto(f"{SALES}add/")

    desk.get_by_text("After the purchase").click()
    desk.focus("#id_pay_within_s")
    desk.fill("#id_pay_within_s", "0.5")
    type_moment(desk, "begins_at", timezone.now() - HOUR)
    type_moment(desk, "ends_at", timezone.now() + HOUR)
    desk.focus("#id_stock")

    wrong = desk.locator("#hints-pay_within_s .sale-hints__error")
    expect(wrong).to_have_text("Ensure this value is greater than or equal to 1.")
    warning = desk.locator("#hints-begins_at .sale-hints__warning")
    text = "Started 1 h ago: buyers can buy as soon as the sale is published."
    expect(warning).to_have_text(text)
    expect(desk.locator("#hints-title .sale-hints__error")).to_have_count(0)
    desk.fill("#id_pay_within_s", "1")
    expect(wrong).to_have_count(0)


@pytest.mark.slow
def test_picked_time_is_noticed_without_an_event(desk: Page) -> None:
    desk.goto(f"{SALES}add/")

    desk.locator(".field-begins_at .datetimeshortcuts a", has_text="Today").first.click()
    desk.locator(".field-begins_at .datetimeshortcuts a", has_text="Now").first.click()

    expect(hints(desk, "begins_at").first).to_contain_text("ago: buyers can buy")


@pytest.mark.slow
def test_server_error_disappears_when_its_entry_changes(desk: Page) -> None:
    sale = make_loaded_sale()
    desk.goto(f"{SALES}{sale.pk}/change/")
    desk.fill("#id_stock", "2000000")
    desk.get_by_text("After the purchase").click()
    desk.fill("#id_pay_within_s", "0.1")
    desk.click("[name=_save]")
    expect(desk.locator(".errorlist")).to_have_count(2)

    desk.fill("#id_stock", "5")

    expect(desk.locator(".errorlist")).to_have_count(1)
    expect(desk.locator("#id_pay_within_s")).to_have_value("0.1")


# --- Nothing moves under a pointer ----------------------------------------------------------------


def beside(page: Page, field: str, text: str = "Today") -> Locator:
    return page.locator(f".field-{field} .datetimeshortcuts a", has_text=text).first


def top(place: Locator) -> float:
    box = place.bounding_box()
    assert box
    return box["y"]


def test_press_beside_a_date_is_not_lost(desk: Page) -> None:
    desk.goto(f"{SALES}add/")
    with desk.expect_response("**/check/"):
        desk.fill("#id_stock", "0")
    today = beside(desk, "begins_at")
    today.hover()
    before = top(today)

    desk.mouse.down()  # the field is left: its error is due
    desk.mouse.up()

    expect(desk.locator("#id_begins_at_0")).not_to_have_value("")
    expect(desk.locator("#hints-stock .sale-hints__error")).to_be_visible()
    assert abs(top(today) - before) < 1


@pytest.mark.slow
def test_hints_move_nothing_under_the_pointer(desk: Page) -> None:
    desk.goto(f"{SALES}add/")
    type_moment(desk, "begins_at", timezone.now() - 3 * HOUR)
    desk.focus("#id_stock")
    today = beside(desk, "ends_at")
    today.hover()
    before = top(today)

    type_moment(desk, "ends_at", timezone.now() - 2 * HOUR)
    for stock, text in (("3", "at least 3 buyers"), ("0", "greater than"), ("", "required")):
        desk.fill("#id_stock", stock)
        desk.focus("#id_begins_at_0")  # in view, so that the browser need not scroll
        expect(desk.locator("#hints-stock")).to_contain_text(text)
        assert abs(top(today) - before) < 1, text
    expect(hints(desk, "ends_at")).to_have_count(2)
    assert abs(top(today) - before) < 1


@pytest.mark.slow
def test_first_hints_move_nothing_at_all(desk: Page) -> None:
    desk.goto(f"{SALES}add/")
    form = desk.locator("#seckillvoucher_form")
    before = form.bounding_box()

    desk.fill("#id_stock", "1000")
    desk.fill("#id_price", "80")
    desk.fill("#id_face_value", "100")
    expect(hints(desk, "stock")).to_have_count(1)
    expect(hints(desk, "price")).to_have_count(1)

    assert form.bounding_box() == before


# --- What is folded, and what is public -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
def test_new_sale_takes_two_screens_instead_of_four(people: Person, language: str) -> None:
    page = people(make_person("shop", admin=True), locale=language)
    page.goto(f"{SALES}add/")
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height < 1_800, "3,343 px with all parts open"
    controls = page.locator(":is(input, select, textarea)[id^=id_]:visible")
    expect(controls).to_have_count(10)  # of eight fields: a moment has two


@pytest.mark.slow
def test_folded_part_opens_by_keyboard(desk: Page) -> None:
    desk.goto(f"{SALES}add/")
    summary = desk.locator("summary", has_text="Draw")
    expect(desk.locator("#id_mode")).to_be_hidden()
    summary.focus()
    desk.keyboard.press("Enter")
    expect(desk.locator("#id_mode")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["change/", "copy/", "../series/?sale={sale}"])
def test_folded_part_names_what_is_set_in_it(desk: Page, page: str) -> None:
    sale = make_loaded_sale(needs_code=True, limit=1, room="busy", stage=SaleStage.DRAFT)
    desk.goto(f"{SALES}{sale.pk}/{page.format(sale=sale.pk)}")
    audience = desk.locator("summary", has_text="Who may buy")
    expect(audience).to_have_text("Who may buy Invitation code")
    room = desk.locator("summary", has_text="Waiting room")
    expect(room).to_contain_text("only while more people come than it lets in")

    audience.click()
    desk.check("#id_first_order_only")
    expect(audience).to_contain_text("First order only · Invitation code")


@pytest.mark.slow
def test_enter_saves_a_draft_and_publish_asks_first(desk: Page) -> None:
    desk.goto(f"{SALES}add/")
    desk.fill("#id_title", "Dumplings")
    desk.fill("#id_price", "8")
    desk.fill("#id_face_value", "10")
    desk.fill("#id_stock", "5")
    type_moment(desk, "begins_at", timezone.now() + HOUR)
    type_moment(desk, "ends_at", timezone.now() + 2 * HOUR)
    desk.press("#id_title", "Enter")
    expect(desk).to_have_url(re.compile(f"{SALES}$"))
    sale = SeckillVoucher.objects.get(voucher__title="Dumplings")
    assert sale.stage == SaleStage.DRAFT

    desk.goto(f"{SALES}{sale.pk}/change/")
    desk.get_by_role("button", name="Publish").click()

    expect(desk.locator(".sale-hints__warning")).to_have_count(2)
    buyers_page = desk.frame_locator("iframe")
    expect(buyers_page.get_by_role("heading", name="Dumplings")).to_be_visible()
    expect(buyers_page.locator("#countdown-left")).to_have_text(re.compile(r"00:\d\d:\d\d"))
    expect(buyers_page.locator("#sign-in")).to_have_text("Sign in to buy")
    sale.refresh_from_db()
    assert sale.stage == SaleStage.DRAFT
    desk.get_by_role("button", name="Publish").click()
    expect(desk.locator(".messagelist")).to_contain_text("1 sale was published.")
    sale.refresh_from_db()
    assert sale.stage == SaleStage.PUBLIC


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["series/", "publish/?ids={}", "withdraw/?ids={}"])
def test_long_title_makes_no_page_wider(desk: Page, page: str, width: int) -> None:
    stage = SaleStage.DRAFT if page.startswith("publish") else SaleStage.PUBLIC
    voucher = make_voucher(title="W" * 120)
    begins_at = timezone.now() + HOUR
    window = {"begins_at": begins_at, "ends_at": begins_at + HOUR}
    sale = make_loaded_sale(voucher=voucher, stage=stage, **window)
    desk.set_viewport_size({"width": width, "height": 800})
    desk.goto(f"{SALES}{page.format(sale.pk)}")
    expect(desk.get_by_text("W" * 120).first).to_be_attached()
    assert desk.evaluate("document.documentElement.scrollWidth") == width
