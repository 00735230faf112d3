"""The admin's form for a sale while it is edited."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Person, make_person
from tests.support.sales import HOUR, make_loaded_sale

pytestmark = [pytest.mark.slow, pytest.mark.browser]

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


def test_hints_appear_beside_entries_and_are_announced(desk: Page) -> None:
    desk.goto(f"{SALES}add/")

    desk.fill("#id_stock", "1000")
    expect(hints(desk, "stock")).to_have_text("Stock 1,000 at limit 1: at least 1,000 buyers.")
    expect(desk.get_by_role("status")).to_contain_text("at least 1,000 buyers.")

    desk.fill("#id_limit", "2")
    expect(hints(desk, "stock")).to_have_text("Stock 1,000 at limit 2: at least 500 buyers.")
    assert "hints-stock" in (desk.get_attribute("#id_stock", "aria-describedby") or "")


def test_errors_appear_only_after_leaving_a_field(desk: Page) -> None:
    desk.goto(f"{SALES}add/")

    desk.focus("#id_pay_within_s")
    desk.fill("#id_pay_within_s", "0.5")
    type_moment(desk, "begins_at", timezone.now() - HOUR)
    type_moment(desk, "ends_at", timezone.now() + HOUR)
    desk.focus("#id_stock")

    wrong = desk.locator("#hints-pay_within_s .sale-hints__error")
    expect(wrong).to_have_text("Ensure this value is greater than or equal to 1.")
    warning = desk.locator("#hints-begins_at .sale-hints__warning")
    expect(warning).to_have_text("Started 1 h ago: buyers can buy as soon as you save.")
    expect(desk.locator("#hints-title .sale-hints__error")).to_have_count(0)
    desk.fill("#id_pay_within_s", "1")
    expect(wrong).to_have_count(0)


def test_picked_time_is_noticed_without_an_event(desk: Page) -> None:
    desk.goto(f"{SALES}add/")

    desk.locator(".field-begins_at .datetimeshortcuts a", has_text="Today").first.click()
    desk.locator(".field-begins_at .datetimeshortcuts a", has_text="Now").first.click()

    expect(hints(desk, "begins_at").first).to_contain_text("ago: buyers can buy")


def test_server_error_disappears_when_its_entry_changes(desk: Page) -> None:
    sale = make_loaded_sale()
    desk.goto(f"{SALES}{sale.pk}/change/")
    desk.fill("#id_stock", "2000000")
    desk.fill("#id_pay_within_s", "0.1")
    desk.click("[name=_save]")
    expect(desk.locator(".errorlist")).to_have_count(2)

    desk.fill("#id_stock", "5")

    expect(desk.locator(".errorlist")).to_have_count(1)
    expect(desk.locator("#id_pay_within_s")).to_have_value("0.1")
