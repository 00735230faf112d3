"""A shop over plain HTTP at 127.0.0.1, as by script/server: signing in, paying, the counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from orders.lifecycle.redemption import written_code
from orders.models import OrderStatus, VoucherOrder
from tests.browser.conftest import PASSWORD, make_person, sign_in_by_form
from tests.fixtures.processes import on_both_ways
from tests.support.orders import make_order, make_sale
from tests.support.stack import Web

pytestmark = pytest.mark.browser

CODE = "ABCD1234EFGH5678"


@on_both_ways
@pytest.mark.usefixtures("workers")
def test_buyer_signs_in_and_pays_at_the_own_address(
    people: Callable[..., Page], served: Web
) -> None:
    buyer = make_person("payer", password=PASSWORD)
    order = make_order(make_sale(), buyer)
    page = people()
    sign_in_by_form(page, "payer")
    page.goto(f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/")
    page.click("#pay")
    page.wait_for_url(f"{served.url}/sandbox/**")
    page.click("button[value=pay]")
    page.wait_for_url(f"{served.url}/vouchers/**")
    expect(page.locator("#code")).to_be_visible()


@pytest.mark.usefixtures("workers")
def test_token_is_kept_for_its_receipt_alone(people: Callable[..., Page]) -> None:
    """Loaded again, the page of an order that the ledger has lost can still be told so."""
    sale, page = make_sale(), people(make_person("keeper"))
    page.goto(f"/vouchers/{sale.pk}/")
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url("**/orders/*/")
    (cookie,) = [it for it in page.context.cookies(page.url) if it["name"] == "purchase-token"]
    assert page.url.endswith(cookie["path"])
    assert cookie["value"].startswith(page.url.split("/")[-2])


def test_scanned_code_is_in_no_request_address(people: Callable[..., Page]) -> None:
    clerk = make_person("scanner", admin=True)
    order = make_order(make_sale(), make_person("guest"), status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=order.pk).update(code=CODE)
    page = people(clerk)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("#")[0]))
    page.goto(f"/staff/redeem/#code={written_code(CODE)}")
    expect(page.locator("[data-verdict=valid]")).to_be_visible()
    page.click("text=Redeem now")
    expect(page.locator("[data-verdict=redeemed]")).to_be_visible()
    assert asked
    assert not [url for url in asked if "ABCD" in url]
