"""The buyer's pages: the purchase page, and the list of one's orders."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from tests.support.inspection import (
    assert_refused,
    broker_length,
    ledger_contents,
    pending_ids,
    redis_commands,
)
from tests.support.orders import (
    id_minted,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    receipt_path,
    reserved,
    reserved_sale,
)
from tests.support.tiers import slow_after
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db

HTML = {"Accept": "text/html"}


def get_page(client: Client, sale: SeckillVoucher) -> Any:
    return client.get(f"/vouchers/{sale.pk}/", headers=HTML)


def get_form(client: Client, sale: SeckillVoucher) -> Any:
    return client.get(f"/vouchers/{sale.pk}/form/", headers=HTML)


def token_in(page: Any) -> str:
    """Return the value of the form's token field; empty where there is none to send."""
    field = re.search(r'<input[^>]*name="token"[^>]*>', page.text)
    value = re.search(r'value="([^"]*)"', field[0]) if field else None
    return value[1] if value else ""


# --- The purchase page ---------------------------------------------------------------------------


def test_page_is_the_same_for_everybody(shopper: Client, buyer: User) -> None:
    sale = make_sale()
    reserved(sale, [buyer])
    page, visitors = get_page(shopper, sale), get_page(Client(), sale)
    assert page.status_code == 200
    assert page["Content-Type"].startswith("text/html")
    assert page["Cache-Control"] == "public, max-age=0, must-revalidate"
    assert {"Cookie", "Accept", "Accept-Language"} <= set(page["Vary"].split(", "))
    assert page.content == visitors.content
    assert not page.cookies
    assert not visitors.cookies
    assert buyer.username not in page.text
    assert token_in(page) == ""
    assert re.search(rf'id="plain-way">(?:(?!</div>).)*/vouchers/{sale.pk}/form/', page.text, re.S)


@pytest.mark.parametrize("path", ["/", "/vouchers/{}/"])
def test_page_tells_no_time_of_the_server(client: Client, path: str) -> None:
    path = path.format(make_sale(begins_in_s=600).pk)
    with time_machine.travel(timezone.now() + dt.timedelta(seconds=1)):
        later = client.get(path, HTTP_ACCEPT="text/html").content
    assert client.get(path, HTTP_ACCEPT="text/html").content == later


def test_page_costs_one_statement_and_one_command(
    shopper: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_sale()
    get_page(shopper, sale)
    with redis_commands() as commands, django_assert_num_queries(1):
        get_page(shopper, sale)
    assert len(commands.ledger) == 1


def test_draft_has_a_page_for_staff_with_a_role_alone(shopper: Client, buyer: User) -> None:
    sale = make_sale(stage=SaleStage.DRAFT)
    assert get_page(shopper, sale).status_code == get_form(shopper, sale).status_code == 404
    buyer.is_staff = True
    buyer.save()
    assert get_page(shopper, sale).status_code == get_form(shopper, sale).status_code == 404
    buyer.user_permissions.add(Permission.objects.get(codename="view_seckillvoucher"))
    assert get_page(shopper, sale).status_code == 404
    assert get_form(shopper, sale).status_code == 200


# --- The page without JavaScript -----------------------------------------------------------------


def test_visitors_form_page_leads_to_the_sign_in_and_back(client: Client) -> None:
    sale = make_sale()
    page = get_form(client, sale)
    assert page.status_code == 200
    assert page["Cache-Control"] == "private, no-store"
    assert f"/accounts/login/?next=/vouchers/{sale.pk}/form/" in page.text
    assert token_in(page) == ""


def test_form_page_is_private_and_its_form_orders(shopper: Client) -> None:
    sale = make_sale()
    page = get_form(shopper, sale)
    assert page.status_code == 200
    assert page["Cache-Control"] == "private, no-store"
    action = re.search(r'<form method="post" action="([^"]+)" id="order-form"', page.text)
    assert action
    answer = shopper.post(action[1], {"token": token_in(page)}, headers=HTML)
    assert answer.status_code == 303
    assert len(pending_ids(sale)) == 1
    receipt = shopper.get(answer["Location"], headers=HTML)
    assert receipt.status_code == 200


def test_page_has_no_token_after_the_end(shopper: Client) -> None:
    page = get_form(shopper, make_sale(begins_in_s=-60, ends_in_s=-1))
    assert page.status_code == 200
    assert token_in(page) == ""


@pytest.mark.parametrize(
    ("status", "state"),
    slow_after(
        2,
        [
            ("queued", "queued"),
            ("unpaid", "yours"),
            ("used", "already_ordered"),
        ],
    ),
)
@pytest.mark.parametrize("loses_redis", [False, True])
def test_page_starts_in_the_state_of_the_held_order(
    shopper: Client,
    buyer: User,
    status: str,
    state: str,
    loses_redis: bool,
    lose_ledger: Callable[[], None],
) -> None:
    sale, (token,) = reserved_sale([buyer])
    if status != "queued":
        fulfil_sale(sale_id=sale.pk)
        VoucherOrder.objects.filter(pk=token.order_id).update(status=status)
    if loses_redis:
        lose_ledger()
    page = get_form(shopper, sale).text
    if loses_redis and status == "queued":  # only the ledger knows of it
        assert 'data-state="open"' in page
    else:
        assert f'data-state="{state}"' in page
        assert f'href="{receipt_path(token)}"' in page


def test_page_shows_deadline_or_queue_position(shopper: Client, buyer: User) -> None:
    sale = make_sale()
    reserved(sale, [make_buyer(), buyer])
    shopper.cookies["django_language"] = "en"
    assert "number 2" in get_form(shopper, sale).text
    fulfil_sale(sale_id=sale.pk)
    pay_by = VoucherOrder.objects.get(user=buyer).pay_by
    assert pay_by
    page = re.sub("</?time[^>]*>", "", get_form(shopper, sale).text)
    assert f"It's yours! Pay by {timezone.localtime(pay_by):%-d %b, %H:%M}" in page


def test_form_page_costs_two_statements_plus_session(
    shopper: Client, buyer: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_sale()
    reserved(sale, [buyer])
    get_form(shopper, sale)
    with django_assert_num_queries(1 + 2):
        get_form(shopper, sale)


def test_buyer_below_the_limit_may_order_more(shopper: Client, buyer: User) -> None:
    sale, (token,) = reserved_sale([buyer], limit=2)
    page = get_form(shopper, sale)
    assert 'data-state="open"' in page.text
    assert f'href="{receipt_path(token)}"' in page.text
    assert token_in(page)
    answer = shopper.post(f"/vouchers/{sale.pk}/orders/", {"token": token_in(page)}, headers=HTML)
    assert answer.status_code == 303
    assert 'data-state="queued"' in get_form(shopper, sale).text


@pytest.mark.parametrize(
    "terms", [{"stock": 0}, {"paused": True}, {"begins_in_s": 60}, {"loaded": False}]
)
def test_sale_in_any_state_has_a_page(shopper: Client, terms: dict[str, Any]) -> None:
    sale = make_sale(**terms)
    assert get_form(shopper, sale).status_code == 200
    assert get_page(shopper, sale).status_code == 200


def test_page_changes_nothing(client: Client) -> None:
    sale = make_sale()
    before = ledger_contents()
    get_page(client, sale)
    get_form(client, sale)
    assert client.head(f"/vouchers/{sale.pk}/form/").status_code == 200
    assert ledger_contents() == before
    assert broker_length() == 0


def test_page_works_without_redis(shopper: Client, lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    lose_ledger()
    assert get_form(shopper, sale).status_code == 200
    assert get_page(shopper, sale).status_code == 200


def test_missing_sale_returns_404(client: Client) -> None:
    url = f"/vouchers/{make_sale().pk + 1}/"
    assert_refused(client.get(url), 404, "not_found")
    assert_refused(client.get(url, headers=HTML), 404, "not_found")
    assert_refused(client.post(url, headers=HTML), 405, "invalid")


# --- My orders -----------------------------------------------------------------------------------


def make_orders(buyer: User, count: int) -> list[str]:
    """Return the ids, newest first, of so many orders of this buyer that are over."""
    sale, first = make_sale(), id_minted(seconds_ago=600)
    for n in range(count):
        make_order(sale, buyer, order_id=first + n, status=OrderStatus.CANCELLED)
    return [str(first + n) for n in reversed(range(count))]


def ids_in(response: Any) -> list[str]:
    return [order["order_id"] for order in response.json()["orders"]]


def test_my_orders_asks_visitor_to_sign_in(client: Client) -> None:
    assert_refused(client.get("/orders/"), 401, "login_required")
    page = client.get("/orders/", headers=HTML)
    assert (page.status_code, page["Location"]) == (302, "/accounts/login/?next=/orders/")


def test_my_orders_speak_the_buyers_words_and_lead_to_the_code(
    shopper: Client, buyer: User
) -> None:
    order = make_order(make_sale(), buyer, status=OrderStatus.PAID)
    code_url = f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/code/"
    VoucherOrder.objects.filter(pk=order.pk).update(code="ABCD1234EFGH5678")
    english = {**HTML, "Accept-Language": "en"}
    page = shopper.get("/orders/", headers=english).text
    assert "Ready to use" in page
    assert code_url in page
    VoucherOrder.objects.filter(pk=order.pk).update(status=OrderStatus.USED)
    page = shopper.get("/orders/", headers=english).text
    assert "Used" in page
    assert code_url not in page


def test_my_orders_are_mine_newest_first(shopper: Client, buyer: User) -> None:
    mine = make_orders(buyer, 3)
    theirs = make_orders(make_buyer(), 2)
    response = shopper.get("/orders/")
    assert response.status_code == 200
    assert response["Cache-Control"] == "private, no-store"
    assert ids_in(response) == mine
    page = shopper.get("/orders/", headers=HTML)
    assert page["Cache-Control"] == "private, no-store"
    assert all(order_id in page.text for order_id in mine)
    assert not any(order_id in page.text for order_id in theirs)


def test_listed_order_equals_its_receipt(shopper: Client, buyer: User) -> None:
    sale, (token,) = reserved_sale([buyer])
    fulfil_sale(sale_id=sale.pk)
    (told,) = shopper.get("/orders/").json()["orders"]
    receipt = shopper.get(told["status_url"]).json()
    assert receipt.pop("server_time_ms") >= told.pop("server_time_ms")
    assert told == receipt
    assert (told["order_id"], told["status"]) == (str(token.order_id), "unpaid")


def test_my_orders_may_be_empty(shopper: Client) -> None:
    assert shopper.get("/orders/").json() == {"entries": [], "orders": [], "page": 1, "pages": 1}
    assert shopper.get("/orders/", headers=HTML).status_code == 200


def test_my_orders_has_pages_of_twenty_that_keep_the_filter(shopper: Client, buyer: User) -> None:
    mine = make_orders(buyer, 45)
    pages = [shopper.get(f"/orders/?page={number}") for number in (1, 2, 3)]
    assert [ids_in(page) for page in pages] == [mine[:20], mine[20:40], mine[40:]]
    assert [page.json()["page"] for page in pages] == [1, 2, 3]
    assert {page.json()["pages"] for page in pages} == {3}
    assert ids_in(shopper.get("/orders/?page=99")) == mine[40:]
    second = shopper.get("/orders/?state=over&page=2", headers=HTML).text
    assert 'href="?page=1&amp;state=over"' in second
    assert 'href="?page=3&amp;state=over"' in second


@pytest.mark.parametrize("headers", [{}, HTML], ids=["json", "html"])
def test_twenty_orders_cost_as_many_queries_as_one(
    shopper: Client, buyer: User, headers: dict[str, str]
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert shopper.get("/orders/", headers=headers).status_code == 200
        return len(captured)

    for number, other in enumerate(make_buyers(1), start=1):
        make_order(make_sale(), other)
        make_order(make_sale(), buyer, order_id=number)
    one = queries()
    for number in range(2, 21):
        make_order(make_sale(loaded=False), buyer, order_id=number)
    assert VoucherOrder.objects.filter(user=buyer).count() == 20
    assert queries() == one


def one_order_of_each_status(buyer: User) -> dict[str, str]:
    """Return the ids of these orders by status."""
    orders = {}
    for number, status in enumerate(OrderStatus, start=1):
        reason = "sold_out" if status == OrderStatus.REFUSED else ""
        sale = make_sale(loaded=False)
        make_order(sale, buyer, order_id=number, status=status, reason=reason)
        orders[str(status)] = str(number)
    return orders


@pytest.mark.parametrize(
    ("state", "statuses"),
    [
        ("to-pay", {"unpaid"}),
        ("to-use", {"paid"}),
        ("over", {"used", "cancelled", "expired", "refunding", "refunded", "refused"}),
        ("", set(OrderStatus.values)),
        ("\0", set(OrderStatus.values)),
    ],
)
def test_my_orders_are_filtered_by_state(
    shopper: Client, buyer: User, state: str, statuses: set[str]
) -> None:
    orders = one_order_of_each_status(buyer)
    wanted = {orders[status] for status in statuses}
    assert set(ids_in(shopper.get("/orders/", {"state": state}))) == wanted
    page = shopper.get("/orders/", {"state": state}, headers=HTML).text
    linked = set(re.findall(r'href="/vouchers/\d+/orders/(\d+)/"', page))
    assert linked == wanted


def test_filter_links_mark_the_current_one(shopper: Client) -> None:
    page = shopper.get("/orders/?state=to-use", headers=HTML).text
    links = dict(re.findall(r'<a href="(/orders/[^"]*)"\s*([^>]*)>', page))
    assert links["/orders/?state=to-use"].strip() == 'aria-current="page"'
    assert links["/orders/?state=to-pay"].strip() == links["/orders/?state=over"].strip() == ""


def test_listed_unpaid_order_shows_its_deadline(shopper: Client, buyer: User) -> None:
    order = make_order(make_sale(), buyer)
    order.pay_by = timezone.now() + dt.timedelta(minutes=5)
    order.save()
    page = shopper.get("/orders/", headers={**HTML, "Accept-Language": "en"}).text
    page = re.sub("</?time[^>]*>", "", page)
    assert f"Pay by {timezone.localtime(order.pay_by):%-d %b, %H:%M}" in page
