"""The report in a browser: charts, print on A4 in dark ink, and without JavaScript."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Person, make_person
from tests.support.orders import make_sale
from vouchers.models import AnswerCount, SeckillVoucher

pytestmark = pytest.mark.browser

Report = Person


@pytest.fixture(scope="module")
def sale(db: None) -> SeckillVoucher:
    """A sale with requests around its begin and twenty minutes later."""
    sale = make_sale(begins_in_s=-3_600)
    for after_s, seconds in ((0, 1), (1, 1), (1_200, 60)):
        at = sale.begins_at.replace(second=0, microsecond=0) + dt.timedelta(seconds=after_s)
        AnswerCount.objects.create(
            seckill_voucher=sale, at=at, answer="accepted", count=7, seconds=seconds
        )
    return sale


@pytest.fixture
def report(people: Person, sale: SeckillVoucher) -> Report:
    """Call it for the page as the shop's owner sees it."""

    def opened(**options: object) -> Page:
        page = people(make_person("owner", admin=True), **options)
        page.goto(f"/admin/vouchers/seckillvoucher/{sale.pk}/report/")
        return page

    return opened


@pytest.mark.slow
def test_charts_are_drawn_and_printed_in_dark_ink(report: Report) -> None:
    page = report(color_scheme="dark")
    expect(page.locator(".report canvas")).to_have_count(2)
    page.evaluate(
        "() => { window.print = () => { dispatchEvent(new Event('beforeprint'));"
        " window.printed = document.documentElement.dataset.theme } }"
    )
    page.get_by_role("button", name="Print / save as PDF").click()
    assert page.evaluate("window.printed") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    sizes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert {(round(float(wide)), round(float(high))) for wide, high in sizes} == {(595, 842)}, "A4"


def test_printed_report_has_no_admin_around_it(report: Report) -> None:
    page = report(viewport={"width": 680, "height": 900})
    page.emulate_media(media="print")
    for selector in ("#header", ".breadcrumbs", ".report__tools", ".report details"):
        expect(page.locator(selector).first).to_be_hidden()
    expect(page.get_by_text("Vouchers offered")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 680


def test_report_has_a_table_without_javascript(report: Report) -> None:
    page = report(java_script_enabled=False)
    expect(page.get_by_text("Print / save as PDF")).to_be_hidden()
    page.get_by_text("Show as a table").first.click()
    expect(page.locator(".report details table").first).to_be_visible()
    expect(page.locator(".report details table").first).to_contain_text("7")
