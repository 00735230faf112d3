"""The waiting list in a browser without JavaScript: joining, one's place, leaving, one's turn."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM
from orders.lifecycle.waiting_list import join, restore_lines
from orders.models import VoucherOrder, WaitingEntry
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.browsers import browser_of
from tests.support.html_forms import fields_of, get_page, send
from tests.support.orders import make_buyer, make_sale, token_for
from tests.support.payments import make_unpaid_order
from tests.support.sales import change_state
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

JSON = {"Accept": "application/json"}


@pytest.fixture
def client(buyer: User) -> Client:
    return browser_of(buyer, enforce_csrf_checks=True, headers={"Accept-Language": "en"})


def sold_out(**terms: Any) -> tuple[SeckillVoucher, VoucherOrder]:
    """Return a sale whose only unit is won, and the order that won it."""
    sale = make_sale(stock=1, **terms)
    return sale, make_unpaid_order(sale)


def waiting_url(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/waiting/"


def page_of(client: Client, sale: SeckillVoucher) -> str:
    return str(get_page(client, f"/vouchers/{sale.pk}/form/").text)


def let_wait(sale: SeckillVoucher, user: User) -> int:
    """Put a buyer in line, and return the order id of an offer."""
    now_ms = int(timezone.now().timestamp() * 1000)
    token = token_for(sale, user)
    join(token_text=token.sign(), sale_id=sale.pk, user_id=user.pk, now_ms=now_ms)
    return token.order_id


def test_buyer_joins_the_waiting_list_by_form(client: Client, buyer: User) -> None:
    sale, _ = sold_out()
    let_wait(sale, make_buyer())
    answer = send(client, page_of(client, sale), waiting_url(sale))
    assert (answer.status_code, answer["Location"]) == (303, waiting_url(sale))
    page = get_page(client, waiting_url(sale))
    assert page.status_code == 200
    assert page["Cache-Control"] == "private, no-store"
    assert "You are number 2 in line" in page.text
    assert "15 minutes to pay ¥80.00" in page.text
    assert WaitingEntry.objects.get(user=buyer).live


def test_first_in_line_sees_it_on_a_page_that_reloads(client: Client, buyer: User) -> None:
    sale, _ = sold_out()
    let_wait(sale, buyer)
    page = get_page(client, waiting_url(sale)).text
    assert "You are next in line" in page
    assert re.search(r'<noscript>\s*<meta http-equiv="refresh" content="15">', page)


def test_waiting_buyer_is_offered_no_second_place(client: Client, buyer: User) -> None:
    sale, _ = sold_out()
    let_wait(sale, buyer)
    page = page_of(client, sale)
    assert fields_of(page, waiting_url(sale)) is None
    assert f'href="{waiting_url(sale)}"' in page


def test_waiting_asks_visitor_to_sign_in() -> None:
    sale, _ = sold_out()
    visitor = Client(headers={"Accept-Language": "en"})
    page = page_of(visitor, sale)
    assert "Sign in to join the waiting list" in page
    assert fields_of(page, waiting_url(sale)) is None
    answer = get_page(visitor, waiting_url(sale))
    assert answer["Location"] == f"/accounts/login/?next={waiting_url(sale)}"


def test_open_sale_does_not_query_the_waiting_list(client: Client) -> None:
    sale = make_sale()
    with CaptureQueriesContext(connection) as captured:
        page_of(client, sale)
    assert not any("waitingentry" in query["sql"] for query in captured)


@pytest.mark.parametrize("verified", [False, True])
def test_page_says_how_the_turn_is_announced(client: Client, buyer: User, verified: bool) -> None:
    sale, _ = sold_out()
    EmailAddress.objects.create(user=buyer, email="ann@example.com", verified=verified)
    User.objects.filter(pk=buyer.pk).update(email="ann@example.com")
    let_wait(sale, buyer)
    page = get_page(client, waiting_url(sale)).text
    assert ("We will email ann@example.com" in page) is verified
    assert ("Your account has no verified email address" in page) is not verified


def test_leaving_by_form_leaves_the_line(client: Client, buyer: User) -> None:
    sale, _ = sold_out()
    let_wait(sale, buyer)
    page = get_page(client, waiting_url(sale)).text
    answer = send(client, page, f"{waiting_url(sale)}leave/")
    assert (answer.status_code, answer["Location"]) == (303, f"/vouchers/{sale.pk}/")
    assert get_page(client, waiting_url(sale)).status_code == 404
    assert fields_of(page_of(client, sale), waiting_url(sale))


def test_place_page_leads_to_the_order_once_offered(client: Client, buyer: User) -> None:
    sale, first = sold_out()
    order_id = let_wait(sale, buyer)
    cancel_order(order_id=first.pk, by=SYSTEM, now=timezone.now())
    told = client.get(waiting_url(sale), headers=JSON).json()
    receipt = f"/vouchers/{sale.pk}/orders/{order_id}/"
    assert (told["offered"], told["place"], told["status_url"]) == (True, None, receipt)
    answer = get_page(client, waiting_url(sale))
    assert (answer.status_code, answer["Location"]) == (303, receipt)
    assert get_page(client, receipt).status_code == 200
    assert f'href="{receipt}"' in page_of(client, sale)


def test_ended_sale_ends_the_waiting(client: Client, buyer: User) -> None:
    sale, _ = sold_out()
    let_wait(sale, buyer)
    end_now(sale)
    page = get_page(client, waiting_url(sale)).text
    assert "The waiting list is closed" in page
    assert "refresh" not in page
    assert WaitingEntry.objects.get(user=buyer).outcome == WaitingEntry.Outcome.OVER


def end_now(sale: SeckillVoucher) -> None:
    """Let the sale be over, and the line forgotten."""
    keys = LedgerKeys(sale.pk)
    ledger_connection().delete(keys.waiting)
    change_state(keys.sale_id, ends_at_ms=1)
    now = timezone.now()
    SeckillVoucher.objects.filter(pk=sale.pk).update(
        begins_at=now - dt.timedelta(hours=2), ends_at=now - dt.timedelta(seconds=1)
    )
    restore_lines(now=now)


# --- Several units --------------------------------------------------------------------------------


@pytest.mark.parametrize("all_or_none", ["", "1"])
def test_buyer_joins_for_several_by_form(client: Client, buyer: User, all_or_none: str) -> None:
    sale, _ = sold_out(limit=6)
    wants = {"quantity": "3", "all_or_none": all_or_none}
    assert send(client, page_of(client, sale), waiting_url(sale), **wants).status_code == 303
    entry = WaitingEntry.objects.get(user=buyer)
    assert (entry.quantity, entry.all_or_none) == (3, bool(all_or_none))
    wanted = re.search(r'<p id="wanted" *>([^<]+)', get_page(client, waiting_url(sale)).text)
    assert wanted
    assert ("once 3 are free at the same time" in wanted[1]) is bool(all_or_none)
    assert ("keep your place for the rest" in " ".join(wanted[1].split())) is not bool(all_or_none)


@pytest.mark.parametrize("terms", [{"limit": 1}, {"limit": 6, "first_order_only": True}])
def test_form_asks_for_no_quantity_where_one_is_all(client: Client, terms: dict[str, Any]) -> None:
    sale, _ = sold_out(**terms)
    form = fields_of(page_of(client, sale), waiting_url(sale))
    assert form is not None
    assert "quantity" not in form


def test_page_leads_to_what_came_while_the_rest_waits(client: Client, buyer: User) -> None:
    sale, first = sold_out(limit=6)
    send(client, page_of(client, sale), waiting_url(sale), quantity="3")
    told = client.get(waiting_url(sale), headers=JSON).json()
    assert (told["quantity"], told["given"], told["wants"]) == (3, 0, "several")
    cancel_order(order_id=first.pk, by=SYSTEM, now=timezone.now())
    told = client.get(waiting_url(sale), headers=JSON).json()
    assert (told["place"], told["given"], told["wants"]) == (1, 1, "rest")
    page = get_page(client, waiting_url(sale)).text
    assert "You have 1 of your 3 vouchers" in page
    assert re.search(rf'id="came" *>\s*<a class="[^"]*" href="{told["status_url"]}">', page)
    assert get_page(client, told["status_url"]).status_code == 200


def test_all_beyond_the_limit_is_refused_with_what_is_possible(buyer: User) -> None:
    sale, _ = sold_out(limit=2)
    asked = {"token": token_for(sale, buyer).sign(), "quantity": 3, "all_or_none": True}
    client = browser_of(buyer, headers=JSON)
    answer = client.post(waiting_url(sale), asked, content_type="application/json")
    assert (answer.status_code, answer.json()["code"], answer.json()["left"]) == (409, "too_few", 2)
    assert not WaitingEntry.objects.filter(live=True).exists()
