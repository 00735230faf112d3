"""From the admin's form to the last unit, as people do it in their browsers."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.browser.conftest import PASSWORD, PHONE, Person, make_person
from tests.concurrency.sales import (
    assert_the_sum_is_right,
    live_orders,
    make_sale,
    wait_until_quiet,
)
from tests.fixtures.processes import on_both_ways
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("row_locks", "workers")]


def make_sale_in_the_admin(page: Page, *, title: str, stock: int, begins_at: dt.datetime) -> None:
    begins, ends = timezone.localtime(begins_at), timezone.localtime(begins_at + dt.timedelta(1))
    page.goto("/admin/vouchers/seckillvoucher/add/")
    page.fill("#id_title", title)
    page.get_by_text("More about the voucher").click()
    page.fill("#id_rules", "One each.")
    page.fill("#id_price", "79.90")
    page.fill("#id_face_value", "100")
    page.fill("#id_stock", str(stock))
    for name, moment in (("begins_at", begins), ("ends_at", ends)):
        page.fill(f"#id_{name}_0", moment.strftime("%Y-%m-%d"))
        page.fill(f"#id_{name}_1", moment.strftime("%H:%M:%S"))
    page.click("[name=_publish]")
    page.wait_for_url("**/publish/?ids=*")
    page.get_by_role("button", name="Publish").click()


@pytest.mark.slow
def test_admin_creates_a_sale_and_three_buyers_want_two_units(people: Person) -> None:
    make_person("shopkeeper", admin=True, password=PASSWORD)

    buyers = [people(make_person(name)) for name in ("ann", "ben", "cy")]
    for page in buyers:
        page.goto("/")
    admin = people()
    admin.goto("/admin/")
    admin.fill("#id_username", "shopkeeper")
    admin.fill("#id_password", PASSWORD)
    admin.click("[type=submit]")
    begins_at = timezone.now() + dt.timedelta(seconds=40)
    make_sale_in_the_admin(admin, title="Hotpot", stock=2, begins_at=begins_at)
    expect(admin.locator(".messagelist")).to_contain_text("1 sale was published.")
    sale = SeckillVoucher.objects.latest("pk")
    assert (sale.stock, sale.voucher.price_cents) == (2, 7_990)

    for page in buyers:
        page.goto(f"/vouchers/{sale.pk}/")
        expect(page.locator("#buy")).to_be_disabled()
    # No reload: each page opens its button by the server's clock.
    for page in buyers:
        expect(page.locator("#buy-label")).to_have_text("Buy now")
        expect(page.locator("#buy")).to_be_enabled()
    assert timezone.now() >= sale.begins_at

    for page in buyers[:2]:
        page.click("#buy")
    for page in buyers[:2]:
        page.wait_for_url("**/orders/*/")
        expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")
    # The third page may have heard of it by now; where it has not, the click does.
    with suppress(PlaywrightTimeoutError):
        buyers[2].click("#buy", timeout=1_000)
    expect(buyers[2].locator("#buy-label")).to_have_text("Sold out")

    wait_until_quiet(sale)
    assert {it.user.username for it in live_orders(sale) if it.user} == {"ann", "ben"}
    assert_the_sum_is_right(sale, ordered=2)

    buyers[0].goto("/orders/")
    expect(buyers[0].locator("main")).to_contain_text("Hotpot")
    admin.goto("/admin/vouchers/seckillvoucher/")
    row = admin.locator("#result_list tbody tr", has_text="Hotpot")
    expect(row.locator(".field-state")).to_have_text("sold out")
    expect(row.locator(".field-sold_units")).to_have_text("2")
    expect(row.locator(".field-left")).to_have_text("0")


@on_both_ways
def test_buyer_signs_up_on_a_phone_in_chinese_and_buys(people: Person) -> None:
    sale = make_sale(stock=1)
    page = people(locale="zh-CN", **PHONE)
    page.goto(f"/vouchers/{sale.pk}/")
    page.get_by_role("link", name="登录后抢购").click()
    page.get_by_role("link", name="注册").click()
    page.fill("[name=username]", f"小明{sale.pk}")
    page.fill("[name=password1]", PASSWORD)
    page.fill("[name=password2]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(f"**/vouchers/{sale.pk}/")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360, "the page does not fit the phone"

    page.get_by_role("button", name="立即抢购").tap()

    page.wait_for_url("**/orders/*/")
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")
    expect(page.locator("#heading")).to_contain_text("抢购成功")
    wait_until_quiet(sale)
    assert_the_sum_is_right(sale, ordered=1)
