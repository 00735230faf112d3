"""What pages say of a draw: when it is drawn, how many entered, what became of one's own entry."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from orders.draws.drawing import close_list
from orders.draws.entries import store_entries, withdraw
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.models import DrawEntry, VoucherOrder
from seckill_site.clocks.database import database_now
from seckill_site.clocks.ledger import ledger_now_ms
from tests.support.draws import draw_to_the_end, end, entered, entered_draw, make_draw
from tests.support.inspection import assert_refused
from tests.support.orders import make_buyer, make_buyers, receipt_path
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

ENGLISH = {"Accept": "text/html", "Accept-Language": "en"}


def page(sale: SeckillVoucher, path: str = "") -> str:
    return Client(headers=ENGLISH).get(f"/vouchers/{sale.pk}/{path}").text


def result(sale: SeckillVoucher, user: User | None) -> str | None:
    client = Client()
    if user:
        client.force_login(user)
    return client.get(f"/vouchers/{sale.pk}/draw/entry/").json()["result"]


@pytest.mark.parametrize("path", ["", "form/"])
def test_sale_page_says_when_it_is_drawn_and_how_many_entered(path: str) -> None:
    sale, _ = entered_draw(make_buyers(3), stock=1_200)
    shown = page(sale, path)
    assert "Winners are drawn at random when entries close: <time" in shown
    assert "Vouchers to win: 1,200 · Entries: 3" in shown


@pytest.mark.parametrize("path", ["", "form/"])
def test_sale_page_of_a_closed_list_says_that_it_is_drawn_now(path: str) -> None:
    sale, _ = entered_draw(make_buyers(3))
    end(sale)
    close_list(sale_id=sale.pk)
    assert "The winners are drawn in a moment." in page(sale, path)


@pytest.mark.parametrize("path", ["", "form/"])
def test_sale_page_of_a_drawn_draw_says_the_result(path: str) -> None:
    sale, _ = entered_draw(make_buyers(3))
    end(sale)
    draw_to_the_end(sale)
    shown = page(sale, path)
    assert "Drawn: 2 of 3 entries won." in shown
    assert "The draw is over." in shown
    assert "Winners are drawn" not in shown
    assert "takes no more entries" not in shown


@pytest.mark.parametrize("path", ["", "draw/"])
def test_drawn_pages_lead_to_the_own_entry(path: str) -> None:
    sale, _ = entered_draw(make_buyers(1))
    end(sale)
    draw_to_the_end(sale)
    shown = page(sale, path)
    assert f'id="own-entry" href="/vouchers/{sale.pk}/draw/entry/"' in shown
    assert "own_entry" in shown


def test_own_entry_before_the_draw_is_entered() -> None:
    [buyer, other] = make_buyers(2)
    sale, _ = entered_draw([buyer])
    assert (result(sale, buyer), result(sale, other)) == ("entered", None)
    store_entries(sale_id=sale.pk)
    assert (result(sale, buyer), result(sale, other)) == ("entered", None)


def test_own_entry_tells_who_has_won_and_who_waits() -> None:
    buyers = make_buyers(3)
    sale, tokens = entered_draw(buyers, stock=1, draw_wait_s=3_600)
    end(sale)
    draw_to_the_end(sale)
    won = VoucherOrder.objects.get(seckill_voucher=sale)
    told = {
        token.order_id: result(sale, buyer) for token, buyer in zip(tokens, buyers, strict=True)
    }
    assert told.pop(won.pk) == "won"
    assert set(told.values()) == {"waiting"}
    cancel_order(order_id=won.pk, by=Actor.staff(None), why="", now=database_now())
    fulfil_sale(sale_id=sale.pk)
    assert sorted(str(result(sale, it)) for it in buyers) == ["waiting", "won", "won"]


def test_own_entry_that_is_not_drawn_is_out() -> None:
    buyer = make_buyer()
    sale, _ = entered_draw([buyer], stock=0)
    end(sale)
    draw_to_the_end(sale)
    assert result(sale, buyer) == "out"


def test_own_entry_leads_a_browser_to_its_receipt(shopper: Client, buyer: User) -> None:
    sale = make_draw()
    path = f"/vouchers/{sale.pk}/draw/entry/"
    assert shopper.get(path, headers=ENGLISH)["Location"] == f"/vouchers/{sale.pk}/draw/"
    [token] = entered(sale, [buyer])
    assert shopper.get(path, headers=ENGLISH)["Location"] == receipt_path(token)
    assert shopper.get(path)["Cache-Control"] == "private, no-store"


def test_own_entry_asks_visitors_to_sign_in(client: Client) -> None:
    sale = make_draw()
    path = f"/vouchers/{sale.pk}/draw/entry/"
    assert_refused(client.get(path), 401, "login_required")
    assert client.get(path, headers=ENGLISH)["Location"] == f"/accounts/login/?next={path}"


def test_withdrawn_entry_is_not_called_bad_luck(shopper: Client, buyer: User) -> None:
    sale, [token] = entered_draw([buyer])
    ids = {"sale_id": sale.pk, "order_id": token.order_id, "user_id": buyer.pk}
    withdraw(**ids, now_ms=ledger_now_ms())
    shown = shopper.get(receipt_path(token), headers=ENGLISH).text
    heading = shown.partition('id="heading"')[2].partition("</h1>")[0]
    assert "Entry withdrawn" in heading
    assert result(sale, buyer) is None
    assert DrawEntry.objects.get(pk=token.order_id).outcome == "withdrawn"
