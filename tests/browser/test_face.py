"""The shop's face in the browser: header, footer, shared pages, manifest, any colour."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone
from PIL import Image
from playwright.sync_api import Page, expect

from orders.models import OrderStatus, VoucherOrder
from tests.browser.conftest import Person, make_person, put_on_sale
from tests.browser.test_accessibility import DESK, PHONE, check_layout, emulate, findings
from tests.support.orders import make_buyer, make_order
from tests.support.stack import Stack, Web
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TERMS = "Pay first.\n\nThen eat."
COLOURS = {"yellow": "#ffcc00", "night": "#0b1026"}
"""Colours that are hard to read: on white, and on black."""


@pytest.fixture(scope="module", params=COLOURS)
def web(
    module_stack: Stack, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Web:
    """A web server of a shop with a face of its own."""
    files = tmp_path_factory.mktemp("face")
    Image.new("RGB", (300, 300), "navy").save(files / "logo.png")
    (files / "terms.txt").write_text(TERMS, encoding="utf-8")
    return module_stack.web(
        SECKILL_SHOP_NAME="好券集市",
        SECKILL_SHOP_NAME_EN="Voucher Market",
        SECKILL_SHOP_COLOUR=COLOURS[request.param],
        SECKILL_SHOP_LOGO=str(files / "logo.png"),
        SECKILL_SHOP_CONTACT="help@shop.example",
        SECKILL_SHOP_IMPRINT="ICP 1234",
        SECKILL_SHOP_TERMS=str(files / "terms.txt"),
    )


@pytest.fixture
def sale(web: Web, db: None) -> SeckillVoucher:
    name = "Old Street Tea"
    merchant, _made = Merchant.objects.get_or_create(name=name, address="18 Old Street")
    sale, last_day = put_on_sale(begins_in_s=0), dt.date(timezone.now().year + 1, 12, 31)
    Voucher.objects.filter(pk=sale.voucher_id).update(
        merchant=merchant, title="热茶", title_en="Hot tea", rules="One pot.", valid_until=last_day
    )
    return sale


def meta(page: Page, name: str) -> str:
    return page.locator(f'meta[property="{name}"]').get_attribute("content") or ""


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_pages_wear_the_face(person: Person, sale: SeckillVoucher, size: dict[str, int]) -> None:
    page = person(viewport=size)
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page).to_have_title("Hot tea · Voucher Market")
    brand = page.locator(".brand")
    expect(brand).to_have_text("Voucher Market")
    assert brand.locator("img").evaluate("it => it.naturalWidth") == 64
    foot = page.locator(".foot")
    expect(foot).to_contain_text("ICP 1234")
    expect(foot.get_by_role("link", name="Contact")).to_have_attribute(
        "href", "mailto:help@shop.example"
    )
    expect(page.locator(".ticket .merchant")).to_have_text("Old Street Tea")
    terms = page.locator(".ticket .terms")
    expect(terms).to_contain_text("At 18 Old Street")
    expect(terms).to_contain_text("refundable until used")
    assert meta(page, "og:title") == "Hot tea"
    assert meta(page, "og:url").endswith(f"/vouchers/{sale.pk}/")
    assert meta(page, "og:image").startswith("http")
    manifest = page.evaluate(
        "async () => (await fetch(document.querySelector('[rel=manifest]').href)).json()"
    )
    assert manifest["name"] == "Voucher Market"
    for each in manifest["icons"]:
        assert page.request.get(each["src"]).ok
    foot.get_by_role("link", name="Terms").click()
    expect(page.locator("main")).to_contain_text("Then eat.")


@pytest.mark.parametrize("where", ["/", "sale", "/terms/", "/accounts/login/", "/nothing/"])
def test_any_colour_stays_readable(people: Person, sale: SeckillVoucher, where: str) -> None:
    path = f"/vouchers/{sale.pk}/" if where == "sale" else where
    for size, scheme in ((PHONE, "light"), (DESK, "dark")):
        page = people(viewport=size)
        page.goto(path)
        expect(page.locator(".brand")).to_have_text("Voucher Market")
        emulate(page, color_scheme=scheme)
        assert findings(page, inject=True) == set()
        check_layout(page)


def test_past_voucher_at_the_counter_is_accessible(people: Person, sale: SeckillVoucher) -> None:
    order = make_order(sale, make_buyer(), status=OrderStatus.PAID)
    code = f"{order.pk:016d}"[-16:]
    VoucherOrder.objects.filter(pk=order.pk).update(code=code)
    SeckillVoucher.objects.filter(pk=sale.pk).update(refund_unused=None)  # so exceptions are made
    Voucher.objects.filter(pk=sale.voucher_id).update(valid_until=dt.date(2020, 1, 1))
    page = people(make_person("boss", admin=True), viewport=PHONE)
    page.goto("/staff/redeem/")
    page.get_by_label("Voucher code").fill(code)
    page.get_by_role("button", name="Check code").click()
    expect(page.get_by_role("heading", name="Expired: valid until 1 Jan 2020")).to_be_visible()
    assert findings(page, inject=True) == set()
    check_layout(page)
    page.get_by_label("Reason for the exception").fill("the train was late")
    page.get_by_role("button", name="Redeem anyway").click()
    expect(page.locator("[data-verdict=redeemed]")).to_be_visible()
