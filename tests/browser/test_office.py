"""The back office in a browser: Today, lists never cut, filters, the cashier's way, reports.

One shop for the module. No test looks at what another one changes.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.urls import reverse
from playwright.sync_api import Page, ViewportSize, expect

from orders.roles import Role, make_roles
from tests.browser.conftest import PASSWORD, Person, cut, make_person, put_on_sale
from tests.browser.test_accessibility import DESK, PHONE, Visit, emulate, findings
from tests.browser.window import Window
from tests.support.orders import make_buyers
from tests.support.payments import make_unpaid_order

pytestmark = pytest.mark.browser


LISTS = sorted(
    reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    for model in admin.site._registry
)

CUT = """() => {
  const page = document.documentElement;
  const found = page.scrollWidth > innerWidth ? [`page: ${page.scrollWidth}`] : [];
  for (const it of document.querySelectorAll("#content *")) {
    const { overflowX } = getComputedStyle(it);
    const ours = it.matches("input, select, summary *") || it.closest(".office-unseen");
    const clips = overflowX !== "visible" && it.clientWidth > 40 && !ours;
    if (clips && it.scrollWidth > it.clientWidth + 1)
      found.push(`${it.tagName}.${it.className}: ${it.scrollWidth} > ${it.clientWidth}`);
  }
  return found;
}"""
"""What is wider than the place it has: it would be cut, or scroll sideways."""


# --- Lists ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["1280", "390"])
def test_no_list_is_cut(size: ViewportSize, language: str, window: Window, visit: Visit) -> None:
    cut = {
        url: found
        for url in [*LISTS, "/admin/", "/admin/staff/", "/admin/system/"]
        if (found := visit("boss", url, size=size, language=language).evaluate(CUT))
    }
    assert cut == {}


def test_narrow_list_shows_each_row_as_a_card(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/orders/voucherorder/", size=PHONE)
    row = page.locator("#result_list tbody tr").first
    expect(page.locator("#result_list thead")).not_to_be_in_viewport()
    label = row.locator(".field-price").evaluate("it => getComputedStyle(it, '::before').content")
    assert label == '"Price"'
    tops = row.locator("td[data-label]").evaluate_all("all => all.map((it) => it.offsetTop)")
    assert len(set(tops)) == len(tops), "cells stand side by side"


def test_moments_are_relative_and_exact_on_hover(window: Window, visit: Visit) -> None:
    page = visit("boss", "/admin/vouchers/seckillvoucher/", size=DESK)
    moment = page.locator(".field-begins time").last
    expect(moment).to_have_text(re.compile(r"ago$|^in |yesterday|tomorrow"))
    expect(moment).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"))


def test_moments_are_exact_without_javascript(window: Window, visit: Visit) -> None:
    url = "/admin/vouchers/seckillvoucher/"
    page = visit("boss", url, size=DESK, java_script_enabled=False)
    text = page.locator(".field-begins time").first.text_content()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text or "")


def test_filter_opens_by_keyboard_and_narrows_the_list(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/orders/voucherorder/", size=DESK)
    filters = page.locator(".office-filter")
    filters.first.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(filters.first.locator("ul")).to_be_visible()
    page.keyboard.press("Escape")
    expect(filters.first.locator("ul")).to_be_hidden()
    expect(filters.first.locator("summary")).to_be_focused()

    filters.first.locator("summary").click()
    filters.first.get_by_role("link", name="refunded", exact=True).click()

    expect(page.locator(".office-filter__chosen")).to_have_text("refunded")
    states = page.locator("#result_list .field-state").all_text_contents()
    assert {it.strip() for it in states} == {"refunded"}


# --- Today ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_today_refreshes_itself_and_keeps_the_focus(window: Window, visit: Visit) -> None:
    sale = put_on_sale()
    page = visit("operator", "/admin/", size=DESK)
    card = page.locator(".sale-card", has=page.locator(f'a[href*="/{sale.pk}/board/"]')).first
    expect(card.locator("strong").first).to_have_text("5")
    board = card.get_by_role("link", name="Board")
    board.focus()

    make_unpaid_order(sale, make_buyers(2))

    expect(card.locator("strong").first).to_have_text("3", timeout=20_000)
    expect(board).to_be_focused()


def test_next_sale_counts_down(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/", size=DESK)
    clock = page.locator(".next-card__clock")
    expect(clock).to_have_text(re.compile(r"^00:\d\d:\d\d$"))
    first = clock.text_content()
    expect(clock).not_to_have_text(first or "")


@pytest.mark.slow
def test_today_says_when_it_is_out_of_date(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/", size=DESK)
    page.route("**/admin/", cut)
    expect(page.locator("[data-stale]")).to_contain_text("Out of date", timeout=20_000)
    page.unroute("**/admin/", cut)
    expect(page.locator("[data-stale]")).to_contain_text("live again", timeout=20_000)


def test_today_is_complete_without_javascript(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/", size=DESK, java_script_enabled=False)
    expect(page.get_by_role("heading", name="Running sales")).to_be_visible()
    expect(page.locator(".next-card__clock")).to_contain_text("minute")
    expect(page.get_by_role("link", name="New sale")).to_be_visible()


# --- The counter ----------------------------------------------------------------------------------


def test_cashier_signs_in_and_lands_on_redeem(window: Window, people: Person) -> None:
    make_roles()
    cashier = make_person("till", password=PASSWORD)
    cashier.is_staff = True
    cashier.save()
    cashier.groups.add(Group.objects.get(name=Role.CASHIER))
    page = people(viewport=PHONE)
    page.goto("/")
    page.get_by_role("link", name="Sign in").click()
    page.fill("[name=login], [name=username]", "till")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")

    expect(page).to_have_url(re.compile(r"/staff/redeem/$"))
    page.goto("/")  # a page that is the same for everybody
    link = page.get_by_role("navigation").get_by_role("link", name="Redeem")
    expect(link).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    link.click()
    expect(page).to_have_url(re.compile(r"/staff/redeem/$"))


def test_shops_header_leads_staff_to_the_back_office(window: Window, people: Person) -> None:
    page = people(window.people["operator"])
    page.goto("/admin/")
    page.goto(f"/vouchers/{window.sales['open'].pk}/")
    page.get_by_role("link", name="Back office").click()
    expect(page.get_by_role("heading", name="Today", exact=True)).to_be_visible()


def test_buyer_sees_no_way_to_the_back_office(window: Window, people: Person) -> None:
    page = people(window.people["ben"])
    page.goto("/")
    expect(page.get_by_role("link", name="My orders")).to_be_visible()
    expect(page.get_by_role("link", name="Back office")).to_be_hidden()
    expect(page.get_by_role("navigation").get_by_role("link", name="Redeem")).to_be_hidden()


# --- Reports, customers, a waiting list by name ---------------------------------------------------

on_desk_and_phone = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


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


@pytest.mark.slow
@on_desk_and_phone
def test_report_leads_from_a_day_to_its_vouchers(
    person: Person, window: Window, size: ViewportSize, tmp_path: Path
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


@pytest.mark.slow
@on_desk_and_phone
def test_customer_is_found_by_an_order_and_shows_it(
    person: Person, window: Window, size: ViewportSize
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


@pytest.mark.slow
@on_desk_and_phone
def test_waiting_list_names_who_waits(person: Person, window: Window, size: ViewportSize) -> None:
    page = person(window.people["operator"], viewport=size)
    page.goto(f"/admin/vouchers/seckillvoucher/{window.sales['sold_out'].pk}/report/")
    page.get_by_role("link", name="Waiting list by name").click()
    expect(page.get_by_role("link", name="cora")).to_be_visible()
    assert_fits(page)
