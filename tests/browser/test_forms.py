"""Forms of the back office in a real browser: pressed twice, and open for a while."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from orders.models import InvitationCode
from tests.browser.conftest import Person, make_person
from tests.browser.test_sale_form import type_moment
from tests.support.sales import HOUR, make_loaded_sale
from vouchers.catalogue.live_changes import pause_sale, resize_sale
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.browser]

SALES = "/admin/vouchers/seckillvoucher/"


@pytest.fixture
def desk(people: Person) -> Page:
    """The page of the shop's superuser."""
    return people(make_person("shop", admin=True))


def test_double_click_makes_one_sale(desk: Page) -> None:
    desk.goto(f"{SALES}add/")
    for name, value in {"title": "Twice", "price": "8", "face_value": "10", "stock": "5"}.items():
        desk.fill(f"#id_{name}", value)
    type_moment(desk, "begins_at", timezone.now() + HOUR)
    type_moment(desk, "ends_at", timezone.now() + 2 * HOUR)
    desk.dblclick("[name=_save]")
    expect(desk.locator(".messagelist")).to_contain_text("Twice")
    desk.wait_for_load_state("networkidle")
    assert SeckillVoucher.objects.filter(voucher__title="Twice").count() == 1


def test_double_click_adds_codes_once(desk: Page) -> None:
    sale = make_loaded_sale(needs_code=True)
    desk.goto(f"{SALES}{sale.pk}/codes/")
    desk.fill("#id_count", "100")
    desk.get_by_role("button", name="Add codes").dblclick()
    expect(desk.locator(".messagelist").first).to_contain_text("Made 100 invitation codes.")
    desk.wait_for_load_state("networkidle")
    assert InvitationCode.objects.filter(seckill_voucher=sale).count() == 100


def test_stale_form_and_a_question_in_a_browser(desk: Page) -> None:
    sale = make_loaded_sale(stock=5)
    desk.goto(f"{SALES}{sale.pk}/change/")
    pause_sale(sale_id=sale.pk)
    resize_sale(sale_id=sale.pk, stock=9, seen=5)
    desk.fill("#id_stock", "8")
    desk.fill("#id_title", "Rice")
    desk.click("[name=_save]")
    expect(desk.locator(".field-stock .errorlist")).to_contain_text("changed this to “9”")
    expect(desk.locator(".messagelist")).to_contain_text("Paused: no → yes")

    desk.fill("#id_price", "95")
    desk.click("[name=_save]")
    question = desk.locator(".asks-first")
    expect(question).to_contain_text("¥80.00 → ¥95.00")
    question.get_by_label("Reason").fill("dearer")
    desk.click("[name=_save]")
    expect(desk.locator(".messagelist")).to_contain_text("Saved the sale “Rice")

    sale.refresh_from_db()
    assert (sale.voucher.title, sale.voucher.price_cents) == ("Rice", 9_500)
    assert (sale.stock, sale.paused) == (8, True)
