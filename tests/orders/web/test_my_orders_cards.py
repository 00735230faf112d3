"""The cards of My orders: what to do now, what was paid, and where money goes back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle import waiting_list
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import places_of
from orders.models import Payment, PaymentStatus, VoucherOrder
from orders.payments.confirmation import note_return
from orders.payments.refunds import refund_order
from seckill_site.clocks.database import database_now
from tests.support.draws import draw_to_the_end, end, entered_draw
from tests.support.orders import make_buyers, make_sale, reserved_purchase
from tests.support.payments import (
    expire_pay_by,
    make_payment,
    make_unpaid_order,
    pay,
    pay_all,
)
from tests.support.sales import make_waiting
from tests.support.tiers import slow_after
from vouchers.inventory.waiting_list import LinePlace, waiting_position

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
    slow_after(
        2,
        [
            (
                {"status": "refunding"},
                "¥80.00 is being refunded through Payment sandbox, to the account you paid from.",
            ),
            ({"status": "refunding", "provider": "gone"}, "¥80.00 is being refunded."),
            ({"status": "partly_refunded", "refunded_cents": 3_000}, "Refunded in part: ¥30.00"),
            ({"status": "refunded", "refunded_at": None}, "Refunded: ¥80.00, to the account you"),
            (
                {"status": "refunding", "received_cents": 900, "received_currency": "EUR"},
                "9.00 EUR is being refunded",
            ),
        ],
    ),
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

    def position(*, sale_id: int, **entry: int) -> LinePlace | None:
        asked.append(sale_id)
        return waiting_position(sale_id=sale_id, **entry)

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


# --- Purchases ------------------------------------------------------------------------------------


def several(buyer: User, count: int = 3) -> list[VoucherOrder]:
    """Return the written orders of one press."""
    sale = make_sale(limit=4)
    ids = reserved_purchase(sale, buyer, count)
    fulfil_sale(sale_id=sale.pk)
    return list(VoucherOrder.objects.filter(pk__in=ids).order_by("pk"))


def test_orders_of_one_press_share_a_card(shopper: Client, buyer: User) -> None:
    orders = several(buyer)
    make_unpaid_order(make_sale(), [buyer])
    page = orders_page(shopper)
    assert page.count('class="order ') == 2
    assert " × 3" in page
    assert "Pay ¥240.00" in page
    content = shopper.get("/orders/", headers={"Accept": "application/json"}).json()
    listed = [it["order_id"] for it in content["orders"] if it["purchase"] == str(orders[0].pk)]
    assert listed == [str(it.pk) for it in orders]


def test_card_says_what_became_of_each_order(shopper: Client, buyer: User) -> None:
    orders = several(buyer)
    pay_all(orders)
    refund_order(order_id=orders[0].pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    words = words_of(orders_page(shopper))
    assert "1 × Refunded · 2 × Ready to use" in words
    assert " × 2" in words_of(orders_page(shopper, "?state=to-use"))


def test_card_tells_one_payment_after_refund_of_one(shopper: Client, buyer: User) -> None:
    orders = several(buyer)
    pay_all(orders)
    refund_order(order_id=orders[0].pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    words = words_of(orders_page(shopper))
    assert re.findall(r"Paid [^¥]+(\S+)", words) == ["¥240.00"]
    assert re.findall(r"Refunded [^¥·]+: (\S+),", words) == ["¥80.00"]


def test_pages_of_orders_count_purchases(
    shopper: Client, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.web.buyer_views.PAGE_ROWS", 1)
    first, second = several(buyer, 2), several(buyer, 3)
    pages = [
        shopper.get(f"/orders/?page={it}", headers={"Accept": "application/json"}).json()
        for it in (1, 2)
    ]
    assert [len(it["orders"]) for it in pages] == [len(second), len(first)]
    assert pages[0]["pages"] == 2
