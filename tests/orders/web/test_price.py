"""The price that a buyer agrees to, from the token to the order, on both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.transitions import SYSTEM
from orders.lifecycle.waiting_list import join
from orders.models import VoucherOrder, WaitingEntry
from orders.placing.tokens import PurchaseToken, read_token
from seckill_site.process_memory import forget_everything
from tests.orders.lifecycle.test_notifications import buyers_with_addresses
from tests.support import asgi, wsgi
from tests.support.draws import make_draw
from tests.support.inspection import pending_ids
from tests.support.orders import make_buyer, make_buyers, make_sale, token_for, written_orders
from tests.support.sales import redis_now_ms
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.catalogue.public_sales import KNOWN_S, revision_of
from vouchers.inventory.rebuild import load_sale
from vouchers.models import SaleMode, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

NEW = 9_500
PAGE = {"Accept": "text/html", "Accept-Language": "en"}

both = pytest.mark.parametrize("ask", [asgi.ask, wsgi.ask], ids=["door", "django"])
Ask = Callable[..., Answer]


def raise_price(sale: SeckillVoucher, cents: int = NEW) -> None:
    """Change the price as an edit does while nothing is pending, and forget what is known."""
    Voucher.objects.filter(pk=sale.voucher_id).update(price_cents=cents)
    load_sale(sale_id=sale.pk)
    sale.refresh_from_db()
    forget_everything()


def place(ask: Ask, token: PurchaseToken, **extra: Any) -> Answer:
    return ask("POST", f"/vouchers/{token.sale_id}/orders/", {"token": token.sign()}, **extra)


@both
@pytest.mark.parametrize(
    ("language", "message"), [("en", "The price is now ¥95."), ("zh-hans", "售价已变为 ¥95。")]
)
def test_token_at_an_old_price_is_refused_and_names_the_new(
    ask: Ask, language: str, message: str
) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    raise_price(sale)

    answer = place(ask, token, HTTP_ACCEPT_LANGUAGE=language)

    assert answer.status == 409
    assert answer.json == {"code": "price_changed", "message": message, "price_cents": NEW}
    assert pending_ids(sale) == []


@both
def test_accepted_order_is_answered_202_at_any_price(ask: Ask) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    first = place(ask, token)
    fulfil_sale(sale_id=sale.pk)
    raise_price(sale)

    again = place(ask, token)

    assert (again.status, again.body) == (202, first.body)
    assert VoucherOrder.objects.get(pk=token.order_id).price_cents == 8_000


@both
def test_token_of_an_older_release_passes(ask: Ask) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    raise_price(sale)

    assert place(ask, token._replace(price_cents=None)).status == 202


@both
def test_entry_in_a_draw_agrees_to_the_price(ask: Ask) -> None:
    sale = make_draw()
    buyers = make_buyers(2)
    token = token_for(sale, buyers[0])
    raise_price(sale)

    refused = place(ask, token)

    assert (refused.status, refused.json["code"]) == (409, "price_changed")
    assert place(ask, token_for(sale, buyers[1])).status == 202


def test_form_is_told_the_price_and_gets_the_button_again(client: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    token = token_for(sale, buyer)
    raise_price(sale)
    form = f"/vouchers/{sale.pk}/form/"

    page = client.post(f"/vouchers/{sale.pk}/orders/", {"token": token.sign()}, headers=PAGE)

    assert page.status_code == 409
    assert "The price is now ¥95." in page.text
    assert f'href="{form}">Buy at the new price</a>' in page.text
    client.force_login(buyer)
    shown = client.get(form, headers=PAGE).text
    assert "¥95.00" in shown
    assert "~p9500" in shown


@pytest.mark.parametrize("path", ["/me/?sale={}", "/vouchers/{}/token/"])
def test_page_gets_a_token_at_the_price(client: Client, path: str) -> None:
    sale, buyer = make_sale(), make_buyer()
    client.force_login(buyer)
    raise_price(sale)

    answer = client.get(path.format(sale.pk), headers={"Accept": "application/json"}).json()

    text = answer.get("sale", answer)["token"]
    token = read_token(text, sale_id=sale.pk, now_ms=redis_now_ms())
    assert token.price_cents == NEW


# --- live/ ----------------------------------------------------------------------------------------


def revision(ask: Ask, sale: SeckillVoucher) -> str:
    forget_everything()
    found: str = ask("GET", f"/vouchers/{sale.pk}/live/").json["revision"]
    return found


AGREED: dict[str, Callable[[SeckillVoucher], object]] = {
    "price": lambda it: Voucher.objects.update(price_cents=NEW),
    "rules": lambda it: Voucher.objects.update(rules="Book a day ahead."),
    "English rules": lambda it: Voucher.objects.update(rules_en="Book a day ahead."),
    "validity": lambda it: Voucher.objects.update(valid_until="2027-01-01"),
    "start": lambda it: SeckillVoucher.objects.update(begins_at=it.begins_at.replace(year=2025)),
    "end": lambda it: SeckillVoucher.objects.update(ends_at=it.ends_at.replace(year=2090)),
    "limit": lambda it: SeckillVoucher.objects.update(limit=2),
    "refundable": lambda it: SeckillVoucher.objects.update(refundable=False),
    "audience": lambda it: SeckillVoucher.objects.update(needs_contact=True),
    "mode": lambda it: SeckillVoucher.objects.update(mode=SaleMode.DRAW),
}


@pytest.mark.parametrize("change", slow_after(1, AGREED.values()), ids=AGREED)
def test_revision_differs_once_a_term_does(change: Callable[[SeckillVoucher], object]) -> None:
    sale = make_sale()
    before = revision(asgi.ask, sale)
    assert before == revision(wsgi.ask, sale) == revision_of(sale)

    change(sale)

    assert revision(asgi.ask, sale) == revision(wsgi.ask, sale) != before


def test_sold_units_and_pauses_are_no_new_revision() -> None:
    sale = make_sale()
    before = revision(asgi.ask, sale)
    written_orders(sale, make_buyers(2))
    SeckillVoucher.objects.update(paused=True, stock=50)

    assert revision(asgi.ask, sale) == before


def test_page_names_its_revision_and_price(client: Client) -> None:
    sale = make_sale()
    page = client.get(f"/vouchers/{sale.pk}/", headers=PAGE).text
    assert f'data-revision="{revision_of(sale)}"' in page
    assert 'data-price-cents="8000"' in page


def test_change_shows_within_a_second() -> None:
    assert KNOWN_S <= 1.0


# --- The waiting list -----------------------------------------------------------------------------


def from_the_waiting_list(sale: SeckillVoucher, *, at: int | None) -> VoucherOrder:
    """Return an unpaid order of a buyer who joined at 80, and whose turn came at another price."""
    holder, waiter = buyers_with_addresses(2)
    [held] = written_orders(sale, [holder])
    token = token_for(sale, waiter)
    join(token_text=token.sign(), sale_id=sale.pk, user_id=waiter.pk, now_ms=redis_now_ms())
    if at:
        raise_price(sale, at)
    cancel_order(order_id=held.order_id, by=SYSTEM, now=timezone.now())
    fulfil_sale(sale_id=sale.pk)
    return VoucherOrder.objects.get(pk=token.order_id)


def test_order_from_the_waiting_list_names_both_prices(client: Client) -> None:
    order = from_the_waiting_list(make_sale(stock=1), at=NEW)
    assert WaitingEntry.objects.get().price_cents == 8_000
    assert order.user

    client.force_login(order.user)
    receipt = client.get(
        f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/", headers=PAGE
    ).text
    tell_buyers(now=order.created_at)

    assert "Price when you joined the waiting list" in receipt
    assert ">¥80.00</dd>" in receipt
    assert ">¥95.00</dd>" in receipt
    [letter] = [it for it in mail.outbox if str(order.pk) in it.body]
    assert "加入候补时售价为 ¥80.00，现为 ¥95.00。" in letter.body


@pytest.mark.parametrize("path", ["orders", "waiting"])
def test_price_too_high_to_store_is_no_token(client: Client, path: str) -> None:
    sale, buyer = make_sale(stock=1), make_buyer()
    written_orders(sale, [make_buyer()])
    text = token_for(sale, buyer).sign().partition("~")[0] + "~p9999999999"
    client.force_login(buyer)

    answer = client.post(
        f"/vouchers/{sale.pk}/{path}/", {"token": text}, headers={"Accept": "application/json"}
    )

    assert (answer.status_code, answer.json()["code"]) == (403, "bad_token")


def test_order_at_the_price_of_joining_names_one(client: Client) -> None:
    order = from_the_waiting_list(make_sale(stock=1), at=None)
    assert order.user

    client.force_login(order.user)
    receipt = client.get(
        f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/", headers=PAGE
    ).text
    tell_buyers(now=order.created_at)

    assert "when you joined" not in receipt
    assert not any("加入候补时" in it.body for it in mail.outbox)
