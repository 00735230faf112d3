"""Reports, customers and a waiting list by name, as staff uses them on a desk and on a phone."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_accessibility import emulate, findings
from tests.browser.window import Window

pytestmark = pytest.mark.browser

Person = Callable[..., Page]

SIZES = [{"width": 1280, "height": 900}, {"width": 390, "height": 844}]


def assert_fits(page: Page) -> None:
    """Assert that nothing is cut, and that axe finds nothing, in light and dark."""
    assert page.evaluate(
        "[document.documentElement, ...document.querySelectorAll('.office__scroll')]"
        ".every((it) => it.scrollWidth <= it.clientWidth)"
    ), page.url
    assert findings(page, inject=True) == set()
    emulate(page, color_scheme="dark")
    assert findings(page, only="color-contrast") == set()
    emulate(page, color_scheme="light")


@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
def test_report_leads_from_a_day_to_its_vouchers(
    person: Person, window: Window, size: dict[str, int], tmp_path: Path
) -> None:
    page = person(window.people["operator"], viewport=size)
    page.goto("/admin/reports/")
    assert_fits(page)
    page.locator("tbody th a").last.click()
    assert "by=voucher" in page.url
    assert_fits(page)
    expect(page.locator("tbody tr").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    target = tmp_path / "report.csv"
    download.value.save_as(target)
    rows = list(csv.reader(target.read_text(encoding="utf-8-sig").splitlines()))
    assert (rows[0][0], rows[-1][0]) == ("Voucher", "Total")
    assert len(rows) == page.locator("tbody tr").count() + 2


@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
def test_customer_is_found_by_an_order_and_shows_it(
    person: Person, window: Window, size: dict[str, int]
) -> None:
    page = person(window.people["operator"], viewport=size)
    page.goto("/admin/customers/")
    assert_fits(page)
    order = str(window.orders["paid"])
    page.get_by_label("Name, email address, phone number or order id").fill(order)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="ann").click()
    assert_fits(page)
    expect(page.get_by_role("link", name=order)).to_be_visible()
    expect(page.get_by_role("heading", name="Refused attempts")).to_be_visible()


@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
def test_waiting_list_names_who_waits(person: Person, window: Window, size: dict[str, int]) -> None:
    page = person(window.people["operator"], viewport=size)
    page.goto(f"/admin/vouchers/seckillvoucher/{window.sales['sold_out'].pk}/report/")
    page.get_by_role("link", name="Waiting list by name").click()
    expect(page.get_by_role("link", name="cora")).to_be_visible()
    assert_fits(page)
