"""Purchases of several vouchers over HTTP: at the front door and in Django."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orders.audience.eligibility import forget_verdict
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.redemption import written_code
from orders.models import InvitationCode, VoucherOrder
from orders.placing.tokens import PurchaseToken
from seckill_site.formatting import money
from tests.support import asgi, wsgi
from tests.support.browsers import browser_of, session_cookie
from tests.support.draws import make_draw
from tests.support.html_forms import get_page
from tests.support.orders import (
    make_buyer,
    make_sale,
    pending,
    receipt_path,
    reserved_purchase,
    token_for,
)
from tests.support.payments import pay_all, receipt_url, status_of
from tests.support.wsgi import Answer
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

both = pytest.mark.parametrize("server", [asgi, wsgi], ids=["front door", "django"])


def press(server: Any, token: PurchaseToken, **fields: Any) -> Answer:
    path = f"/vouchers/{token.sale_id}/orders/"
    answer: Answer = server.ask("POST", path, {"token": token.sign(), **fields})
    return answer


def a_token(**terms: Any) -> tuple[SeckillVoucher, PurchaseToken]:
    sale = make_sale(**{"limit": 4, **terms})
    return sale, token_for(sale, make_buyer())


@both
def test_press_takes_its_quantity_as_one_purchase(server: Any) -> None:
    sale, token = a_token()
    answer = press(server, token, quantity=3)
    assert answer.status == 202
    assert answer.json["purchase"] == answer.json["order_id"] == str(token.order_id)
    assert [it.purchase for it in pending(sale)] == [token.order_id] * 3


@both
def test_press_without_quantity_takes_one(server: Any) -> None:
    sale, token = a_token()
    assert press(server, token).status == 202
    assert len(pending(sale)) == 1


@both
@pytest.mark.parametrize(("all_or_none", "given"), [(False, 2), (True, 0)])
def test_last_units_go_as_the_buyer_chose(server: Any, all_or_none: bool, given: int) -> None:
    sale, token = a_token(stock=2)
    answer = press(server, token, quantity=3, all_or_none=all_or_none)
    assert len(pending(sale)) == given
    if all_or_none:
        assert (answer.status, answer.json["code"], answer.json["left"]) == (409, "too_few", 2)
    else:
        assert answer.status == 202


@both
def test_same_token_with_another_quantity_changes_nothing(server: Any) -> None:
    sale, token = a_token()
    first = press(server, token, quantity=2)
    assert press(server, token, quantity=4, all_or_none=True).json == first.json
    assert len(pending(sale)) == 2


@both
def test_draw_refuses_several_entries_by_name(server: Any) -> None:
    draw = make_draw()
    answer = press(server, token_for(draw, make_buyer()), quantity=2)
    assert (answer.status, answer.json["code"]) == (409, "one_entry")


@both
@pytest.mark.parametrize("quantity", [0, 21, "many"])
def test_quantity_out_of_bounds_is_invalid(server: Any, quantity: object) -> None:
    sale, token = a_token()
    answer = press(server, token, quantity=quantity)
    assert (answer.status, answer.json["code"]) == (400, "invalid")
    assert not pending(sale)


def test_form_says_how_many_its_buyer_wanted() -> None:
    _, token = a_token()
    form = {"token": token.sign(), "quantity": "3", "all_or_none": "1"}
    answer = wsgi.ask("POST", f"/vouchers/{token.sale_id}/orders/", form, accept="text/html")
    assert (answer.status, answer.headers["location"]) == (303, f"{receipt_path(token)}?wanted=3")


# --- Receipts -------------------------------------------------------------------------------------


def bought(
    quantity: int = 3, *, wanted: int = 0, paid: bool = False, **terms: Any
) -> tuple[SeckillVoucher, User, list[VoucherOrder]]:
    """Return the written orders of a press, and pay them if asked."""
    sale, buyer = make_sale(**{"limit": 4, **terms}), make_buyer()
    ids = reserved_purchase(sale, buyer, wanted or quantity)
    fulfil_sale(sale_id=sale.pk)
    orders = list(VoucherOrder.objects.filter(pk__in=ids).order_by("pk"))
    pay_all(orders if paid else [])
    return sale, buyer, orders


def receipt_json_of(buyer: User, order: VoucherOrder) -> dict[str, Any]:
    answer = wsgi.ask("GET", receipt_url(order), HTTP_COOKIE=session_cookie(buyer))
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


def page_of(buyer: User, order: VoucherOrder, query: str = "") -> str:
    client = browser_of(buyer, headers={"Accept-Language": "en"})
    page = get_page(client, f"{receipt_url(order)}{query}")
    assert page.status_code == 200
    return " ".join(str(page.text).split())


def test_receipt_of_each_order_names_purchase_and_all_orders() -> None:
    _, buyer, orders = bought(3)
    for order in orders:
        content = receipt_json_of(buyer, order)
        assert (content["order_id"], content["purchase"]) == (str(order.pk), str(orders[0].pk))
        assert [it["order_id"] for it in content["units"]] == [str(it.pk) for it in orders]


def test_receipt_of_one_has_no_list_of_orders() -> None:
    _, buyer, orders = bought(1)
    content = receipt_json_of(buyer, orders[0])
    assert content["purchase"] == content["order_id"]
    assert "units" not in content


def test_queued_receipt_has_the_orders_that_are_reserved() -> None:
    sale, buyer = make_sale(limit=4), make_buyer()
    ids = reserved_purchase(sale, buyer, 2)
    answer = wsgi.ask(
        "GET", f"/vouchers/{sale.pk}/orders/{ids[0]}/", HTTP_COOKIE=session_cookie(buyer)
    )
    units = [(it["order_id"], it["status"]) for it in answer.json["units"]]
    assert units == [(str(it), "queued") for it in ids]


def test_token_alone_opens_no_code_of_its_purchase() -> None:
    sale, buyer = make_sale(limit=4), make_buyer()
    token = token_for(sale, buyer)
    assert press(wsgi, token, quantity=2).status == 202
    fulfil_sale(sale_id=sale.pk)
    pay_all(VoucherOrder.objects.filter(user=buyer))
    answer = wsgi.ask("GET", receipt_path(token), HTTP_PURCHASE_TOKEN=token.sign())
    assert answer.json["status"] == "paid"
    assert "units" not in answer.json


def test_other_buyers_orders_are_not_among_the_units() -> None:
    _, buyer, orders = bought(2)
    VoucherOrder.objects.filter(pk=orders[1].pk).update(user=make_buyer())
    assert "units" not in receipt_json_of(buyer, orders[0])


def test_addresses_of_further_orders_lead_to_the_receipt() -> None:
    _, buyer, orders = bought(3)
    for order in orders[1:]:
        answer = wsgi.ask(
            "GET", receipt_url(order), accept="text/html", HTTP_COOKIE=session_cookie(buyer)
        )
        assert (answer.status, answer.headers["location"]) == (303, receipt_url(orders[0]))


def test_unpaid_receipt_has_one_button_with_the_total() -> None:
    _, buyer, orders = bought(3)
    page = page_of(buyer, orders[0])
    total = money(sum(it.price_cents for it in orders))
    assert f"Pay {total} for 3 vouchers" in page
    assert page.count("/pay/") == 1
    assert "All 3 vouchers go to the next buyers at once." in page


def test_cancelling_a_receipt_cancels_all_its_orders() -> None:
    sale, buyer, orders = bought(3)
    client = browser_of(buyer)
    client.post(f"{receipt_url(orders[0])}cancel/")
    assert {status_of(it) for it in orders} == {"cancelled"}
    assert snapshot(sale_id=sale.pk).remaining == sale.stock
    assert 'id="units"' not in page_of(buyer, orders[0])


def test_paid_receipt_shows_each_code_with_its_own_refund() -> None:
    _, buyer, orders = bought(3, paid=True)
    page = page_of(buyer, orders[0])
    for order in orders:
        assert written_code(order.code or "") in page
        assert f'action="{receipt_url(order)}refund/"' in page
    assert f'id="total">{money(3 * orders[0].price_cents)}<' in page


def test_refunding_one_voucher_leaves_the_others_and_their_codes() -> None:
    _, buyer, orders = bought(3, paid=True)
    browser_of(buyer).post(f"{receipt_url(orders[0])}refund/")
    content, page = receipt_json_of(buyer, orders[0]), page_of(buyer, orders[0])
    assert content["lead"] == str(orders[1].pk)
    assert [it["status"] for it in content["units"]] == [content["status"], "paid", "paid"]
    assert [written_code(it.code or "") in page for it in orders] == [False, True, True]
    assert ">Paid</h1>" in page


def test_partly_given_receipt_says_how_many_of_how_many() -> None:
    _, buyer, orders = bought(2, wanted=3, stock=2)
    page = page_of(buyer, orders[0], "?wanted=3")
    assert "You got 2 of the 3 you wanted" in page
    assert "You got" not in page_of(buyer, orders[0])
    assert "You got" not in page_of(buyer, orders[0], "?wanted=<b>")


@pytest.mark.parametrize("paid", [False, True])
def test_receipt_takes_as_many_statements_for_many_as_for_two(paid: bool) -> None:
    counts = []
    for quantity in (2, 6):
        _, buyer, orders = bought(quantity, limit=6, paid=paid)
        client = browser_of(buyer)
        with CaptureQueriesContext(connection) as queries:
            assert get_page(client, receipt_url(orders[0])).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


# --- The sale's page ------------------------------------------------------------------------------


def mine(server: Any, sale: SeckillVoucher, buyer: User) -> dict[str, Any]:
    found = server.ask("GET", f"/me/?sale={sale.pk}", HTTP_COOKIE=session_cookie(buyer)).json
    content: dict[str, Any] = found["sale"]
    return content


@both
def test_me_says_how_many_the_limit_leaves(server: Any) -> None:
    sale, buyer = make_sale(limit=4), make_buyer()
    assert mine(server, sale, buyer)["most"] == 4
    first = reserved_purchase(sale, buyer, 2)[0]
    content = mine(server, sale, buyer)
    assert (content["most"], content["order_id"]) == (2, str(first))
    reserved_purchase(sale, buyer, 2)
    assert "most" not in mine(server, sale, buyer)


@both
@pytest.mark.parametrize("terms", [{}, {"limit": 3, "first_order_only": True}])
def test_me_names_no_number_where_a_press_takes_one(server: Any, terms: dict[str, Any]) -> None:
    sale = make_sale(**terms)
    assert "most" not in mine(server, sale, make_buyer())
    draw = make_draw()
    assert "most" not in mine(server, draw, make_buyer())


@both
def test_me_counts_the_codes_that_were_entered(server: Any) -> None:
    sale, buyer = make_sale(limit=4, needs_code=True), make_buyer()
    for code in ("WELCOME1", "WELCOME2"):
        InvitationCode.objects.create(seckill_voucher=sale, code=code, user=buyer)
    assert mine(server, sale, buyer)["most"] == 2


def form_of(sale: SeckillVoucher, buyer: User) -> str:
    page = get_page(browser_of(buyer), f"/vouchers/{sale.pk}/form/")
    return " ".join(str(page.text).split())


def test_form_offers_what_the_limit_leaves() -> None:
    sale, buyer = make_sale(limit=4), make_buyer()
    reserved_purchase(sale, buyer, 1)
    page = form_of(sale, buyer)
    assert page.count('<option value="3">') == 1
    assert '<option value="4">' not in page
    assert 'name="all_or_none"' in page


@pytest.mark.parametrize("terms", [{}, {"limit": 3, "first_order_only": True}])
def test_form_of_single_unit_sale_asks_for_no_quantity(terms: dict[str, Any]) -> None:
    assert 'name="quantity"' not in form_of(make_sale(**terms), make_buyer())


def test_form_takes_another_code_while_the_limit_leaves_more() -> None:
    sale, buyer = make_sale(limit=2, needs_code=True), make_buyer()
    for number in (1, 2):
        code = f"WELCOME{number}"
        InvitationCode.objects.create(seckill_voucher=sale, code=code, user=buyer)
        forget_verdict(sale_id=sale.pk, user_id=buyer.pk)
        assert ('id="another-code"' in form_of(sale, buyer)) is (number < 2)


def test_page_that_could_not_order_sends_the_same_quantity_again(
    lose_ledger: Callable[[], None],
) -> None:
    _, token = a_token()
    lose_ledger()
    form = {"token": token.sign(), "quantity": "3", "all_or_none": "1"}
    answer = wsgi.ask("POST", f"/vouchers/{token.sale_id}/orders/", form, accept="text/html")
    page = answer.body.decode()
    assert answer.status == 503
    assert 'name="quantity" value="3"' in page
    assert 'name="all_or_none" value="True"' in page
