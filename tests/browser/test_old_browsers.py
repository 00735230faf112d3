"""A purchase in browsers that lack what is younger than the oldest ones that the README names."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENT_MS, PHONE, Person, cut, put_on_sale, run_first
from tests.support.old_browsers import LATER_APIS
from tests.support.orders import make_buyer
from vouchers.models import SeckillVoucher, Work

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("row_locks", "workers")]

REMOVED = """
  for (const path of %s) {
    const names = path.split(".");
    const last = names.pop();
    const owner = names.reduce((found, name) => found && found[name], globalThis);
    if (owner) delete owner[last];
  }
"""
"""A script that takes these APIs away before those of the page run."""

NO_MODULE_WORKERS = """
  const { Worker } = window;
  window.Worker = function (url) { return new Worker(url); };
"""
"""Safari before 15 and Firefox before 114 read a module as a plain script, which fails."""

GONE = """path => path.split(".").reduce(
  (found, name) => found === undefined || found === null || !(name in Object(found))
    ? undefined
    : Object.getOwnPropertyDescriptor(found, name) ?? found[name],
  globalThis) === undefined"""


def expect_purchase(page: Page, sale: SeckillVoucher) -> None:
    """Buy and pay, and see the code."""
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#buy-label")).to_have_text("Buy now")
    expect(page.locator("#plain-way")).to_be_hidden()
    page.click("#buy")
    page.wait_for_url("**/orders/*/", timeout=PATIENT_MS)
    page.click("#pay", timeout=PATIENT_MS)
    page.wait_for_url("**/sandbox/*/")
    page.locator("main form button").first.click()
    expect(page.locator("#receipt")).to_have_attribute("data-status", "paid", timeout=PATIENT_MS)


def removed(*paths: str) -> str:
    return REMOVED % list(paths)


@pytest.mark.slow
@pytest.mark.parametrize("path", LATER_APIS)
def test_purchase_passes_without_a_later_api(people: Person, path: str) -> None:
    page = people(make_buyer(), **PHONE)
    run_first(page, removed(path))

    expect_purchase(page, put_on_sale())

    assert page.evaluate(GONE, path)


@pytest.mark.slow
def test_purchase_passes_without_any_later_api(people: Person) -> None:
    page = people(make_buyer(), **PHONE)
    run_first(page, removed(*LATER_APIS) + NO_MODULE_WORKERS)

    expect_purchase(page, put_on_sale(work=Work.USUAL))


@pytest.mark.slow
def test_broken_script_leaves_the_way_without_one(people: Person) -> None:
    page = people(make_buyer(), **PHONE)
    page.route("**/purchase*.js", cut)
    sale = put_on_sale()
    page.goto(f"/vouchers/{sale.pk}/")

    page.get_by_role("link", name="Buy without JavaScript").click()

    page.wait_for_url("**/form/")
