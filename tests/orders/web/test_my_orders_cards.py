"""The cards of My orders: what to do now, what was paid, and where money goes back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from orders.lifecycle import waiting_list
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import places_of
from orders.models import Payment, PaymentStatus, VoucherOrder
from orders.payments.confirmation import note_return
from orders.payments.refunds import refund_order
from seckill_site.clocks.database import database_now
from tests.support.draws import draw_to_the_end, end, entered_draw
from tests.support.orders import make_buyers, make_sale
from tests.support.payments import expire_pay_by, make_payment, make_unpaid_order, pay
from tests.support.sales import make_waiting
from vouchers.inventory.waiting_list import waiting_position

pytestmark = pytest.mark.django_db

ENGLISH = {"Accept": "text/html", "Accept-Language": "en"}
SANDBOX, FAKE = "orders.payments.sandbox.Sandbox", "tests.support.payments.FakeProvider"


def orders_page(shopper: Client, query: str = "") -> str:
    """Return the text of My orders with single spaces."""
    shown = shopper.get(f"/orders/{query}", headers=ENGLISH).text
    return re.sub(r"\s+", " ", shown.partition("<main")[2].partition("</main>")[0])


def words_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


def pay_path(order: VoucherOrder) -> str:
    return f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/pay/"


# --- Paying ---------------------------------------------------------------------------------------


def test_unpaid_order_is_paid_from_its_card(shopper: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    page = orders_page(shopper)
    assert f'action="{pay_path(order)}"' in page
    assert re.search(r'data-pay-by-ms="\d{13}"', page)
    assert "Pay ¥80.00" in page
    assert shopper.post(pay_path(order), headers=ENGLISH).status_code == 303


def test_choice_of_providers_is_made_on_the_receipt(
    shopper: Client, buyer: User, settings: Any
) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    settings.SECKILL_PAYMENT_PROVIDERS = [SANDBOX, FAKE]
    page = orders_page(shopper)
    assert pay_path(order) not in page
    receipt = f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/"
    assert f'<a class="button button--buy" href="{receipt}">' in page


def test_payment_being_confirmed_is_not_made_again(shopper: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    make_payment(order)
    note_return(order=order, now=database_now())
    page = orders_page(shopper)
    assert pay_path(order) not in page
    assert "Paid, confirming…" in page


def test_order_past_its_time_to_pay_cannot_be_paid(shopper: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    expire_pay_by(order)
    page = orders_page(shopper)
    assert pay_path(order) not in page
    assert "The time to pay has run out" in page


# --- What was paid, and goes back -----------------------------------------------------------------


def test_paid_order_says_when_how_much_and_by_which_way(shopper: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    pay(order)
    said = words_of(orders_page(shopper))
    assert re.search(r"Paid \d+ \w+, \d\d:\d\d: ¥80.00 \(Payment sandbox\)", said)


def test_refund_says_when_how_much_and_where_to(shopper: Client, buyer: User) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    payment = pay(order)
    refund_order(order_id=order.pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    payment.refresh_from_db()
    assert payment.status == PaymentStatus.REFUNDED
    said = words_of(orders_page(shopper))
    assert re.search(
        r"Refunded \d+ \w+, \d\d:\d\d: ¥80.00, to the account you paid from \(Payment sandbox\)",
        said,
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"status": "refunding"},
            "¥80.00 is on its way back by Payment sandbox, to the account you paid from.",
        ),
        ({"status": "refunding", "provider": "gone"}, "¥80.00 is on its way back."),
        ({"status": "partly_refunded", "refunded_cents": 3_000}, "Refunded in part: ¥30.00"),
        ({"status": "refunded", "refunded_at": None}, "Refunded: ¥80.00, to the account you"),
        (
            {"status": "refunding", "received_cents": 900, "received_currency": "EUR"},
            "9.00 EUR is on its way back",
        ),
    ],
)
def test_money_on_its_way_is_named(
    shopper: Client, buyer: User, fields: dict[str, Any], said: str
) -> None:
    order = make_unpaid_order(make_sale(), [buyer])
    pay(order)
    Payment.objects.update(**fields)
    assert said in words_of(orders_page(shopper))


# --- Waiting --------------------------------------------------------------------------------------


def test_place_on_a_waiting_list_is_listed(shopper: Client, buyer: User) -> None:
    sale = make_sale(stock=0)
    for number, waiter in enumerate([*make_buyers(2), buyer], start=1):
        shopper.force_login(waiter)
        make_waiting(sale, waiter, order_id=number)
        shopper.get(f"/vouchers/{sale.pk}/waiting/")  # puts it in line
    page = orders_page(shopper)
    assert f'href="/vouchers/{sale.pk}/waiting/"' in page
    assert "You are number 3 in line" in page
    assert "You have no orders yet" not in page
    assert "waiting/" not in orders_page(shopper, "?state=to-pay")


def test_place_is_listed_without_redis(
    shopper: Client, buyer: User, lose_ledger: Callable[[], None]
) -> None:
    sale = make_sale(stock=0)
    make_waiting(sale, buyer, order_id=7)
    lose_ledger()
    assert f'href="/vouchers/{sale.pk}/waiting/"' in orders_page(shopper)


def test_redis_that_is_away_is_asked_for_places_once(
    buyer: User, lose_ledger: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        make_waiting(make_sale(stock=0), buyer, order_id=number)
    lose_ledger()
    asked: list[int] = []

    def position(*, sale_id: int, order_id: int, user_id: int) -> int | None:
        asked.append(sale_id)
        return waiting_position(sale_id=sale_id, order_id=order_id, user_id=user_id)

    monkeypatch.setattr(waiting_list, "waiting_position", position)
    assert [place for _, place in places_of(user_id=buyer.pk)] == [None] * 3
    assert len(asked) == 1


def test_waiting_entry_of_a_draw_is_listed_once(shopper: Client, buyer: User) -> None:
    sale, _ = entered_draw([buyer], stock=0, draw_wait_s=3_600)
    end(sale)
    draw_to_the_end(sale)
    page = orders_page(shopper)
    assert page.count('class="order__title"') == 1
    assert "Your entries in draws" in page
