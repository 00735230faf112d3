"""A rehearsal in the admin: started from the sale, its progress and its verdict."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Person, make_person
from tests.concurrency.sales import make_sale

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]


@pytest.fixture
def boss(people: Person) -> Page:
    """The page of somebody who may do everything."""
    return people(make_person("boss", admin=True), viewport={"width": 360, "height": 740})


def test_staff_rehearses_a_sale_and_reads_the_verdict(boss: Page, browser: Browser) -> None:
    sale = make_sale(stock=40, begins_in_s=7_200, ends_in_s=9_000)
    boss.goto(f"/admin/vouchers/seckillvoucher/{sale.pk}/change/")
    boss.get_by_role("link", name="Rehearse").click()
    boss.get_by_label("Buyers").fill("200")
    boss.get_by_role("button", name="Rehearse now").click()

    progress, verdict = boss.locator("#rehearsal progress"), boss.locator(".rehearsal__verdict")
    expect(progress.or_(verdict).first).to_be_visible()  # a late page may find it finished
    with_no_scripts = browser.new_context(
        base_url=boss.url, storage_state=boss.context.storage_state(), java_script_enabled=False
    )
    plain = with_no_scripts.new_page()
    plain.goto(boss.url)

    for page in (boss, plain):
        heading = page.locator(".rehearsal__verdict h2")
        expect(heading).to_contain_text("40")
        expect(page.locator(".rehearsal__verdict")).to_have_attribute("data-verdict", "right")
    assert boss.evaluate("document.documentElement.scrollWidth") <= 360
    with_no_scripts.close()


def test_staff_cancels_a_running_rehearsal(boss: Page) -> None:
    sale = make_sale(stock=40, begins_in_s=7_200, ends_in_s=9_000)
    boss.goto(f"/admin/vouchers/seckillvoucher/{sale.pk}/rehearse/")
    boss.get_by_label("Buyers").fill("5000")
    boss.get_by_role("button", name="Rehearse now").click()
    boss.get_by_role("button", name="Cancel and clean up").click()
    verdict = boss.locator(".rehearsal__verdict")
    expect(verdict).to_have_attribute("data-verdict", "failed")
    expect(verdict).to_contain_text("it was cancelled")
