"""The code of a paid voucher on a page of its own and as a picture, for its owner only."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from orders.models import OrderStatus, VoucherOrder
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.payments import receipt_url
from vouchers.templatetags.seckill import qr

pytestmark = pytest.mark.django_db

CODE = "ABCD1234EFGH5678"
HTML = {"Accept": "text/html", "Accept-Language": "en"}
PATHS = ["code/", "code.png"]


def an_order(buyer: User, status: str = "paid") -> VoucherOrder:
    order = make_order(make_sale(), buyer, status=OrderStatus(status))
    VoucherOrder.objects.filter(pk=order.pk).update(code=CODE)
    return order


def ask(client: Client, order: VoucherOrder, path: str) -> Any:
    return client.get(f"{receipt_url(order)}{path}", headers=HTML)


def test_page_shows_code_and_qr_picture(shopper: Client, buyer: User) -> None:
    page = ask(shopper, an_order(buyer), "code/")
    assert page.status_code == 200
    assert "ABCD-1234-EFGH-5678" in page.text
    assert qr("http://testserver/staff/redeem/#code=ABCD-1234-EFGH-5678") in page.text
    assert page["Cache-Control"] == "private, no-store"


def test_picture_is_a_private_download(shopper: Client, buyer: User) -> None:
    order = an_order(buyer)
    picture = ask(shopper, order, "code.png")
    assert picture["Content-Type"] == "image/png"
    assert picture["Content-Disposition"] == f'attachment; filename="voucher-{order.pk}.png"'
    assert picture["Cache-Control"] == "private, no-store"
    assert picture.content.startswith(b"\x89PNG")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("status", ["unpaid", "used", "refunding", "refunded", "cancelled"])
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
