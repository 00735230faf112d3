"""Pictures that code has drawn: each can be read again, from what the screen shows."""

from __future__ import annotations

import base64
import datetime as dt
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from orders.models import OrderStatus, VoucherOrder
from tests.browser.conftest import PASSWORD, PHONE, Person, make_person
from tests.concurrency.sales import make_sale
from tests.support.orders import make_order
from tests.support.payments import receipt_url
from tests.support.qr_codes import read_qr, read_shown_qr
from vouchers.models import Merchant, Voucher

pytestmark = pytest.mark.browser

NOTE_TEXTS = """
  window.drawn = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.drawn.push(text);
    return draw.call(this, text, ...place);
  };
"""
CODE = "VERA1234EFGH5678"
FACTS = {
    "name": "老街茶馆",
    "address": "上海市黄浦区老街 18 号",
    "contact": "021-5555-0118",
    "rules": "请提前一天电话预约，每桌限用一张，不找零，不与其他优惠同享，节假日通用。",
}


@pytest.fixture
def voucher(db: None) -> VoucherOrder:
    """A paid order of a voucher with all that is needed to use it, in Chinese."""
    if known := VoucherOrder.objects.filter(code=CODE).first():
        return known
    order = make_order(make_sale(stock=1), make_person("vera"), status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=order.pk).update(code=CODE)
    facts = {it: FACTS[it] for it in ("address", "contact")}
    merchant, _ = Merchant.objects.get_or_create(name=FACTS["name"], defaults=facts)
    Voucher.objects.filter(sales=order.seckill_voucher).update(
        title="双人火锅套餐",
        merchant=merchant,
        rules=FACTS["rules"],
        valid_until=dt.date(2030, 5, 3),
    )
    return order


def save_picture(page: Page) -> bytes:
    with page.expect_download() as saved:
        page.click("a[data-title]")
    return Path(saved.value.path()).read_bytes()


@pytest.mark.slow
def test_code_is_read_from_each_of_its_pictures(people: Person, voucher: VoucherOrder) -> None:
    page, path = people(make_person("vera"), locale="zh-CN", **PHONE), receipt_url(voucher)
    page.add_init_script(NOTE_TEXTS)
    texts = {}
    for url in (path, f"{path}code/", "/orders/codes/"):
        page.goto(url)
        texts[url] = read_shown_qr(page, ".qr")
        texts[f"{url}, saved"] = read_qr(page, save_picture(page))
        drawn = "".join(page.evaluate("window.drawn"))
        for fact in ("双人火锅套餐", "2030年5月3日", "VERA-1234-EFGH-5678", *FACTS.values()):
            assert fact in drawn, url
    texts["server"] = read_qr(page, page.request.get(f"{path}code.png").body())

    assert {text and text.partition("/staff/")[2] for text in texts.values()} == {
        "redeem/#code=VERA-1234-EFGH-5678"
    }, texts


@pytest.mark.slow
def test_picture_without_javascript_has_the_code(people: Person, voucher: VoucherOrder) -> None:
    page = people(make_person("vera"), java_script_enabled=False)
    page.goto(receipt_url(voucher))
    with page.expect_download() as saved:
        page.click("a[data-title]")
    assert saved.value.suggested_filename == f"voucher-{voucher.pk}.png"
    reader = people()
    code = read_qr(reader, Path(saved.value.path()).read_bytes())
    assert code
    assert code.endswith("#code=VERA-1234-EFGH-5678")


@pytest.mark.slow
def test_picture_is_shown_to_be_held_in_wechat(people: Person, voucher: VoucherOrder) -> None:
    page = people(
        make_person("vera"), user_agent="Mozilla/5.0 (iPhone) MicroMessenger/8.0", **PHONE
    )
    page.goto(receipt_url(voucher))
    for _ in range(2):
        page.click("a[data-title]")
        expect(page.locator(".held img")).to_have_count(1)
    expect(page.locator(".held")).to_contain_text("Press and hold the picture")
    address = page.locator(".held img").evaluate("it => it.src")
    picture = base64.b64decode(address.partition(",")[2])
    assert (read_qr(page, picture) or "").endswith("#code=VERA-1234-EFGH-5678")


@pytest.mark.slow
def test_print_has_title_merchant_place_validity_and_rules(
    people: Person, voucher: VoucherOrder
) -> None:
    page = people(make_person("vera"), locale="zh-CN")
    page.goto(f"{receipt_url(voucher)}code/")
    page.emulate_media(media="print")
    for fact in ("双人火锅套餐", "2030年5月3日", *FACTS.values()):
        expect(page.get_by_text(fact).first).to_be_visible()
    for hidden in (".top", ".code__actions", ".actions"):
        expect(page.locator(hidden).first).to_be_hidden()
    assert read_shown_qr(page, ".qr")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_key_of_two_step_sign_in_is_read_and_copied(people: Person, scheme: str) -> None:
    buyer = make_person(f"tess-{scheme}", password=PASSWORD)
    clipboard = ["clipboard-read", "clipboard-write"]
    page = people(buyer, color_scheme=scheme, permissions=clipboard, **PHONE)
    page.goto("/accounts/2fa/totp/activate/")
    page.fill("main [name=password]", PASSWORD)
    page.click("main form.form button[type=submit]")

    key = page.locator("#code").inner_text()
    address = urlsplit(read_shown_qr(page, "img.qr") or "")

    assert (address.scheme, address.netloc) == ("otpauth", "totp")
    assert parse_qs(address.query)["secret"] == [key]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("button", name="Copy key").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == key
