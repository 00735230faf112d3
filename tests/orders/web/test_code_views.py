"""The codes of paid vouchers on pages of their own and as a picture, for their owner only."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from orders.models import OrderStatus, VoucherOrder
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.payments import receipt_url
from tests.support.tiers import slow_after
from vouchers.models import Merchant, Voucher
from vouchers.templatetags.seckill import qr

pytestmark = pytest.mark.django_db

CODE = "ABCD1234EFGH5678"
HTML = {"Accept": "text/html", "Accept-Language": "en"}
PATHS = ["code/", "code.png"]
MAP = "https://map.example/?q={place}"
CODES = "/orders/codes/"


def an_order(buyer: User, status: str = "paid") -> VoucherOrder:
    order = make_order(make_sale(), buyer, status=OrderStatus(status))
    VoucherOrder.objects.filter(pk=order.pk).update(code=CODE)
    return order


def make_usable(order: VoucherOrder) -> None:
    """Give the voucher of an order a merchant, an end and rules."""
    tea = Merchant.objects.create(name="Tea", address="1 Old Street", contact="021-5555 0118")
    Voucher.objects.filter(sales=order.seckill_voucher).update(
        merchant=tea, valid_until=dt.date(2030, 5, 3), rules="Book a day ahead."
    )


def ask(client: Client, order: VoucherOrder, path: str) -> Any:
    return client.get(f"{receipt_url(order)}{path}", headers=HTML)


def test_page_shows_code_and_qr_picture(shopper: Client, buyer: User) -> None:
    page = ask(shopper, an_order(buyer), "code/")
    assert page.status_code == 200
    assert "ABCD-1234-EFGH-5678" in page.text
    assert qr("http://testserver/staff/redeem/#code=ABCD-1234-EFGH-5678") in page.text
    assert page["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize("page", slow_after(1, ["receipt", "code", "codes", "my orders", "sale"]))
def test_page_has_all_that_is_needed_to_use_a_voucher(
    shopper: Client, buyer: User, settings: Any, page: str
) -> None:
    settings.SECKILL_MAP_URL = MAP
    order = an_order(buyer)
    make_usable(order)
    sale_url = f"/vouchers/{order.seckill_voucher_id}/"
    receipt = receipt_url(order)
    url = {"receipt": receipt, "code": f"{receipt}code/", "codes": CODES, "sale": sale_url}
    text = shopper.get(url.get(page, "/orders/"), headers=HTML).text

    assert ">Tea</" in text
    assert 'href="https://map.example/?q=Tea%201%20Old%20Street"' in text
    assert '<a class="way" href="tel:02155550118">021-5555 0118</a>' in text
    assert "3 May 2030" in text
    assert "Book a day ahead." in text
    if page != "sale":
        assert f'href="{sale_url}"' in text


@pytest.mark.parametrize("contact", ["WeChat: old-street", "javascript:alert(1)"])
def test_free_text_of_a_merchant_is_no_link(shopper: Client, buyer: User, contact: str) -> None:
    order = an_order(buyer)
    make_usable(order)
    Merchant.objects.update(contact=contact)
    text = ask(shopper, order, "code/").text
    assert contact in text
    assert '<a class="way" href="tel' not in text
    assert 'href="javascript' not in text
    assert "1 Old Street" in text
    assert "map.example" not in text  # the shop has named no map


def test_codes_page_has_own_paid_codes_alone(shopper: Client, buyer: User) -> None:
    usable, used = an_order(buyer), make_order(make_sale(), buyer, status=OrderStatus.USED)
    others = make_order(make_sale(), make_buyer(), status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=used.pk).update(code="USED1234EFGH5678")
    VoucherOrder.objects.filter(pk=others.pk).update(code="ELSE1234EFGH5678")

    page = shopper.get(CODES, headers=HTML)

    assert page["Cache-Control"] == "private, no-store"
    assert qr("http://testserver/staff/redeem/#code=ABCD-1234-EFGH-5678") in page.text
    assert f'id="order-{usable.pk}"' in page.text
    assert f'data-owner="{buyer.username}"' in page.text
    assert "As of " in page.text
    assert "USED-1234" not in page.text
    assert "ELSE-1234" not in page.text


def test_codes_page_says_that_older_ones_are_elsewhere(
    shopper: Client, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.web.code_views.MOST_CODES", 0)
    an_order(buyer)
    page = shopper.get(CODES, headers=HTML).text
    assert "Older ones are under My orders." in page


def test_codes_page_of_a_visitor_is_401_or_the_login(client: Client) -> None:
    assert client.get(CODES, headers={"Accept": "application/json"}).status_code == 401
    assert client.get(CODES, headers=HTML)["Location"] == f"/accounts/login/?next={CODES}"


def test_script_that_keeps_codes_answers_for_orders_alone(client: Client) -> None:
    """A browser takes its directory as its scope, unless a header widens it."""
    script = client.get("/orders/codes.js")
    assert script["Content-Type"].startswith("text/javascript")
    assert script["Cache-Control"] == "no-cache"
    assert "Service-Worker-Allowed" not in script
    assert "addEventListener" in script.text


def test_picture_is_a_private_download(shopper: Client, buyer: User) -> None:
    order = an_order(buyer)
    picture = ask(shopper, order, "code.png")
    assert picture["Content-Type"] == "image/png"
    assert picture["Content-Disposition"] == f'attachment; filename="voucher-{order.pk}.png"'
    assert picture["Cache-Control"] == "private, no-store"
    assert picture.content.startswith(b"\x89PNG")


@pytest.mark.parametrize("path", slow_after(1, PATHS))
@pytest.mark.parametrize(
    "status", slow_after(1, ["unpaid", "used", "refunding", "refunded", "cancelled"])
)
def test_code_that_cannot_be_used_leads_to_receipt(
    shopper: Client, buyer: User, status: str, path: str
) -> None:
    order = an_order(buyer, status)
    answer = ask(shopper, order, path)
    assert (answer.status_code, answer["Location"]) == (303, receipt_url(order))


@pytest.mark.parametrize("path", PATHS)
def test_other_buyer_gets_404(client: Client, buyer: User, path: str) -> None:
    order = an_order(buyer)
    client.force_login(make_buyer())
    assert ask(client, order, path).status_code == 404


@pytest.mark.parametrize("path", PATHS)
def test_visitor_is_sent_to_the_login(client: Client, buyer: User, path: str) -> None:
    order = an_order(buyer)
    answer = ask(client, order, path)
    assert answer.status_code == 302
    assert answer["Location"] == f"/accounts/login/?next={receipt_url(order)}{path}"
