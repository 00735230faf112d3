"""Every page about a sale whose ledger has left Redis is made from rows, and brings none back."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backoffice.board.snapshot import SaleSum, read_board
from orders.models import OrderStatus
from tests.support.browsers import browser_of
from tests.support.inspection import sale_keys
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.staff import words

pytestmark = pytest.mark.django_db


def test_pages_of_an_old_sale_need_no_ledger(shop: Client) -> None:
    hours = 3_600
    sale = make_sale(
        begins_in_s=-900 * hours,
        ends_in_s=-800 * hours,
        loaded=False,
        epoch=1,
        sold=1,
        ledger_removed_at=timezone.now(),
    )
    buyer = make_buyer()
    order = make_order(sale, buyer, status=OrderStatus.PAID)
    pages = [
        reverse("admin:vouchers_seckillvoucher_changelist"),
        reverse("admin:vouchers_seckillvoucher_change", args=[sale.pk]),
        reverse("admin:sale-board", args=[sale.pk]),
        reverse("admin:sale-report", args=[sale.pk]),
        reverse("admin:index"),
        f"/vouchers/{sale.pk}/",
        f"/vouchers/{sale.pk}/live/",
    ]
    own = [f"/vouchers/{sale.pk}/orders/{order.pk}/", "/orders/", f"/me/?sale={sale.pk}"]
    for browser, paths in ((shop, pages), (browser_of(buyer), own)):
        for path in paths:
            response = browser.get(path)
            assert response.status_code == 200, path
            assert "not ready yet" not in words(response.content.decode()), path
    board = read_board(sale_id=sale.pk, now=timezone.now())
    assert board.sum == SaleSum(total=10, left=9, pending=0, live=1)
    assert sale_keys() == []
