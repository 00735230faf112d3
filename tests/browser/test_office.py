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
from django.core.cache import cache
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, ViewportSize, expect

from accounts.models import Invitation
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from orders.roles import Role, make_roles
from seckill_site.redis.ledger_connection import ledger_connection
from tests.browser.conftest import PASSWORD, Person, cut, make_person, put_on_sale
from tests.browser.test_accessibility import (
    DESK,
    NARROW,
    PHONE,
    ZOOMED,
    Visit,
    emulate,
    findings,
)
from tests.browser.window import Window
from tests.support.orders import make_buyers, make_order, make_sale
from tests.support.payments import make_unpaid_order
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys

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


@pytest.mark.parametrize("scripts", slow_after(1, [True, False]))
def test_moments_are_exact_with_their_zone_beside_how_long_ago(
    window: Window, visit: Visit, scripts: bool
) -> None:
    places = {
        "/admin/orders/voucherorder/": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\+8",
        "/admin/vouchers/seckillvoucher/": r"\w{3} \d+ \w{3}, \d\d:\d\d ?–.*\d\d:\d\d UTC\+8",
    }
    for url, exact in places.items():
        page = visit("boss", url, size=DESK, java_script_enabled=scripts)
        moments = page.locator("#result_list time").all_inner_texts()
        ago = r"\n(.* ago|in .*|yesterday|tomorrow|now)" if scripts else ""
        assert any(re.fullmatch(exact + ago, it) for it in moments), moments
        assert all(re.match(exact, it) for it in moments), moments


@pytest.mark.slow
def test_moment_of_now_is_neither_ahead_nor_ago(window: Window, visit: Visit) -> None:
    page = visit("boss", "/admin/orders/voucherorder/", size=DESK)
    page.clock.set_fixed_time("2026-12-01T12:00:00Z")  # of this device
    page.reload()
    said = page.evaluate("""async () => {
      const { showTimes } = await import(document.querySelector("script[src*='/office.']").src);
      const time = document.createElement("time");
      const { content } = document.querySelector("meta[name=server-time]");
      time.dateTime = new Date(content * 1000).toISOString();
      time.dataset.relative = "";
      document.body.append(time);
      showTimes();
      return time.textContent;
    }""")
    assert said == "now"


@pytest.mark.slow
def test_invited_address_has_a_line_of_its_own_on_a_phone(window: Window, visit: Visit) -> None:
    role = Group.objects.get(name=Role.CASHIER)
    Invitation.objects.create(name="Ada", email="ada.lovelace@example.com", role=role)
    page = visit("boss", "/admin/staff/", size=PHONE)
    address = page.get_by_text("ada.lovelace@example.com", exact=True).first
    assert address.evaluate("it => it.offsetHeight") < 30


# --- Figures --------------------------------------------------------------------------------------

OVERFLOWING = """() => {
  const found = [], page = document.documentElement;
  const figures = "[data-length], .report__sections td, .office__table td";
  for (const it of document.querySelectorAll(figures)) {
    const range = document.createRange();
    range.selectNodeContents(it);
    const text = range.getBoundingClientRect(), place = it.parentElement.getBoundingClientRect();
    const isCut = getComputedStyle(it).overflow !== "visible" && text.height > it.clientHeight + 1;
    if (text.right > place.right + 1 || isCut) found.push(it.textContent.trim());
  }
  return page.scrollWidth > innerWidth ? [...found, "the page"] : found;
}"""
"""The figures that are wider than their card or cell."""


@pytest.mark.slow
@pytest.mark.parametrize("size", [NARROW, PHONE, ZOOMED, DESK], ids=["320", "390", "200%", "1280"])
def test_large_figures_stay_in_their_places(
    window: Window, visit: Visit, size: ViewportSize
) -> None:
    sale = make_sale(stock=1_000_000, ends_in_s=3_600)
    for buyer in make_buyers(9):
        order = make_order(sale, buyer, status=OrderStatus.PAID)
        VoucherOrder.objects.filter(pk=order.pk).update(price_cents=2_147_483_647)
        OrderEvent.objects.create(
            order=order, before="unpaid", after="paid", at=timezone.now(), actor_kind="system"
        )
    second = int(timezone.now().timestamp()) - 4
    ledger = ledger_connection()
    for answer in ("accepted", "sold_out"):
        ledger.hset(LedgerKeys(sale.pk).tally, f"{second}:{answer}", 9_876_543)
    cache.clear()
    pages = ("/admin/", *(f"/admin/vouchers/seckillvoucher/{sale.pk}/{it}/" for it in (
        "board", "report",
    )), "/admin/reports/?by=sale")  # fmt: skip
    wrong = {
        url: found
        for url in pages
        if (found := visit("operator", url, size=size).evaluate(OVERFLOWING))
    }
    assert wrong == {}


# --- Secrets --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_secret_that_is_shown_once_is_copied_by_a_press(window: Window, people: Person) -> None:
    page = people(window.people["boss"], permissions=["clipboard-read", "clipboard-write"])
    page.goto("/admin/api/apitoken/add/")
    page.get_by_label("Name").fill("till")
    page.get_by_label("Redeem vouchers").check()
    page.get_by_role("button", name="Save", exact=True).click()
    secret = page.locator("#code").inner_text()
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == secret


def test_filter_opens_by_keyboard_and_narrows_the_list(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/orders/voucherorder/", size=DESK)
    choice = page.locator("a", has_text=re.compile("^refunded$"))
    states = page.locator(".office-filter").filter(has=choice)
    states.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(states.locator("ul")).to_be_visible()
    page.keyboard.press("Escape")
    expect(states.locator("ul")).to_be_hidden()
    expect(states.locator("summary")).to_be_focused()

    states.locator("summary").click()
    states.locator(choice).click()

    expect(page.locator(".office-filter__chosen")).to_have_text("refunded")
    shown = page.locator("#result_list .field-state").all_text_contents()
    assert {it.strip() for it in shown} == {"refunded"}


@pytest.mark.slow
def test_sale_filter_completes_what_is_typed(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/orders/voucherorder/", size=DESK)
    sale = VoucherOrder.objects.latest("pk").seckill_voucher
    typed = page.locator(".office-filter").filter(has=page.locator("select")).first

    typed.locator("summary").click()
    typed.locator(".select2-selection").click()
    page.locator(".select2-search__field").fill(str(sale.pk))
    page.locator(".select2-results__option", has_text=re.compile(f"#{sale.pk}$")).click()
    typed.get_by_role("button").click()

    expect(page.locator(".office-filter__chosen")).to_have_text(f"{sale}")
    shown = page.locator("#result_list .field-voucher").all_text_contents()
    assert {it.strip() for it in shown} == {f"{sale}"}


@pytest.mark.slow
def test_phone_navigation_shows_on_which_sides_it_goes_on(window: Window, visit: Visit) -> None:
    page = visit("boss", "/admin/", size=PHONE)
    nav = page.locator(".office-nav").first
    arrows = "it => ['::before', '::after'].map((which) => getComputedStyle(it, which).display)"
    assert nav.evaluate(arrows) == ["none", "block"]

    nav.locator("ul").evaluate("it => it.scrollTo(it.scrollWidth, 0)")
    expect(nav).to_have_class("office-nav office-nav--before")
    assert nav.evaluate(arrows) == ["block", "none"]

    page.set_viewport_size(DESK)
    expect(nav).to_have_class("office-nav")


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

    expect(card.locator("strong").first).to_have_text("3")
    expect(board).to_be_focused()


@pytest.mark.slow
@pytest.mark.parametrize("url", ["/admin/", "{sale}board/"])
def test_press_during_a_refresh_is_not_lost(url: str, window: Window, visit: Visit) -> None:
    sale = put_on_sale()
    place = f"/admin/vouchers/seckillvoucher/{sale.pk}/"
    page = visit("operator", url.format(sale=place), size=DESK)
    link = page.locator(f'#content a[href*="/{sale.pk}/board/pause/"]').first
    link.hover()
    page.mouse.down()
    make_unpaid_order(sale, make_buyers(2))
    with page.expect_response(re.compile(r"/admin/$|/data/$")):
        pass
    with page.expect_response(re.compile(r"/admin/$|/data/$")):
        pass  # the first one has been shown, were it not held back
    page.mouse.up()
    expect(page).to_have_url(re.compile("/board/pause/"))


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
    expect(page.locator("[data-stale]")).to_contain_text("Out of date")
    page.unroute("**/admin/", cut)
    expect(page.locator("[data-stale]")).to_contain_text("live again")


def test_today_is_complete_without_javascript(window: Window, visit: Visit) -> None:
    page = visit("operator", "/admin/", size=DESK, java_script_enabled=False)
    expect(page.get_by_role("heading", name="Running sales")).to_be_visible()
    expect(page.locator(".next-card__clock")).to_contain_text("minute")
    expect(page.get_by_role("link", name="New sale")).to_be_visible()


# --- The counter ----------------------------------------------------------------------------------


@pytest.mark.slow
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


@pytest.mark.slow
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
def test_report_leads_from_a_day_to_its_sales(
    person: Person, window: Window, size: ViewportSize, tmp_path: Path
) -> None:
    page = person(window.people["operator"], viewport=size)
    page.goto("/admin/reports/")
    assert_fits(page)
    page.locator("tbody th a").last.click()
    page.wait_for_url("**by=sale**")
    assert_fits(page)
    expect(page.locator("tbody tr").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    target = tmp_path / "report.csv"
    download.value.save_as(target)
    rows = list(csv.reader(target.read_text(encoding="utf-8-sig").splitlines()))
    assert (rows[0][0], rows[-2][0], rows[-1][0][:13]) == ("Sale", "Total", "Period before")
    assert len(rows) == page.locator("tbody tr").count() + 3


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
    expect(page.get_by_role("heading", name="Customer: ann")).to_be_visible()
    assert_fits(page)
    expect(page.get_by_role("link", name=order)).to_be_visible()
    expect(page.get_by_role("heading", name="Refused attempts")).to_be_visible()


@pytest.mark.slow
@on_desk_and_phone
def test_support_answers_from_a_code_and_a_day(
    person: Person, window: Window, size: ViewportSize
) -> None:
    """From a code to its order and its customer, to what they were refused and what may go."""
    ann, paid = window.people["ann"], VoucherOrder.objects.get(pk=window.orders["paid"])
    page = person(window.people["operator"], viewport=size)
    page.goto("/admin/orders/voucherorder/")
    page.get_by_role("searchbox").fill(paid.code or "")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("heading", name=f"Order {paid.pk}")).to_be_visible()
    assert (paid.code or "")[:8] not in page.url
    page.get_by_role("link", name=ann.username, exact=True).click()
    attempts = page.get_by_role("region", name="Refused attempts")
    for reason in ("too early", "sold out", "paused"):
        expect(attempts.get_by_text(reason, exact=True)).to_be_visible()
    unwritten = page.get_by_role("region", name="Not written yet")
    expect(unwritten.get_by_text(str(window.orders["queued"]))).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export data").click()
    assert download.value.suggested_filename == "account.json"
    page.get_by_role("link", name="Delete data").click()
    assert_fits(page)
    expect(page.get_by_text("What stays, without a name, and why")).to_be_visible()
    page.goto("/admin/orders/voucherorder/")
    page.get_by_label("Ordered on").fill("2020-01-01")
    assert_fits(page)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("0 results")).to_be_visible()


@pytest.mark.slow
@on_desk_and_phone
def test_waiting_list_names_who_waits(person: Person, window: Window, size: ViewportSize) -> None:
    page = person(window.people["operator"], viewport=size)
    page.goto(f"/admin/vouchers/seckillvoucher/{window.sales['sold_out'].pk}/report/")
    page.get_by_role("link", name="Waiting list by name").click()
    expect(page.get_by_role("link", name="cora")).to_be_visible()
    assert_fits(page)
