"""The order path over HTTP, status by status, as ``docs/http.md`` fixes it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from redis import Redis

from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.transitions import Actor
from orders.models import OrderStatus, VoucherOrder
from orders.payments.refunds import finish_refunds, refund_order
from orders.placing.tokens import PurchaseToken
from seckill_site.clocks.machine import epoch_ms
from tests.support.inspection import (
    answers,
    assert_refused,
    ledger_contents,
    pending_ids,
)
from tests.support.orders import (
    PRICE_CENTS,
    id_minted,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    pending,
    receipt_path,
    reserved,
    reserved_sale,
    token_for,
    tokens_for,
    written_orders,
)
from tests.support.payments import pay
from tests.support.sales import change_state, make_waiting, redis_now_ms
from tests.support.tiers import slow_after
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

HTML = "text/html,application/xhtml+xml;q=0.9"
JSON = "application/json"

both = pytest.mark.parametrize("accept", [JSON, HTML], ids=["json", "html"])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def place_url(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/orders/"


def token_url(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/token/"


def place(client: Client, sale: SeckillVoucher, token: object, accept: str = JSON) -> Any:
    """Send a token as a program does, or as a form does."""
    return client.post(
        place_url(sale),
        {"token": token},
        content_type=JSON,
        headers={"Accept": accept},
    )


def the_token_header(token: PurchaseToken) -> dict[str, str]:
    return {"Purchase-Token": token.sign()}


# --- POST orders/ --------------------------------------------------------------------------------


def test_accepted_program_gets_202_with_order_id(client: Client) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    response = place(client, sale, token.sign())
    assert response.status_code == 202
    assert response["Content-Type"] == JSON
    assert response.json() == {
        "order_id": str(token.order_id),
        "purchase": str(token.order_id),
        "status": "queued",
        "status_url": receipt_path(token),
        "poll_after_ms": 300,
    }
    assert pending_ids(sale) == [token.order_id]
    assert not response.cookies


def test_accepted_form_redirects_to_receipt(client: Client) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    response = client.post(
        place_url(sale),
        f"token={quote(token.sign())}",
        content_type="application/x-www-form-urlencoded",
        headers={"Accept": HTML},
    )
    assert (response.status_code, response["Location"]) == (303, receipt_path(token))


def test_order_needs_no_session_and_no_csrf_token() -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    assert place(Client(enforce_csrf_checks=True), sale, token.sign()).status_code == 202


def test_once_accepted_id_is_answered_202_after_refusal(client: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    token = token_for(sale, buyer)
    first = place(client, sale, token.sign())
    User.objects.filter(pk=buyer.pk).update(is_active=False)
    fulfil_sale(sale_id=sale.pk)
    again = place(client, sale, token.sign())
    assert (again.status_code, again.content) == (202, first.content)
    assert client.get(receipt_path(token), headers=the_token_header(token)).json()["status"] == (
        "refused"
    )


@both
@pytest.mark.parametrize("wrong", ["forged", "expired", "another sale's"])
def test_forged_or_expired_token_is_bad_token(client: Client, wrong: str, accept: str) -> None:
    sale, other, buyer = make_sale(), make_sale(), make_buyer()
    token = token_for(sale, buyer)
    text = {
        "forged": token.sign()[:-1] + "-",
        "expired": PurchaseToken(token.order_id, buyer.pk, sale.pk, now_ms() - 61_000).sign(),
        "another sale's": token_for(other, buyer).sign(),
    }[wrong]
    before = ledger_contents()
    assert_refused(place(client, sale, text, accept), 403, "bad_token")
    assert ledger_contents() == before


@both
@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"begins_in_s": 60}, "not_started"),
        ({"begins_in_s": -60, "ends_in_s": -1}, "ended"),
        ({"paused": True}, "paused"),
    ],
)
def test_closed_sale_returns_409_with_reason(
    client: Client, terms: dict[str, Any], code: str, accept: str
) -> None:
    sale = make_sale(**terms)
    response = place(client, sale, token_for(sale, make_buyer()).sign(), accept)
    assert_refused(response, 409, code)


@pytest.mark.parametrize("attempt", [None, 2])
def test_sold_out_has_arrival_and_last_unit_times(client: Client, attempt: int | None) -> None:
    sale, (first, second) = make_sale(stock=1), make_buyers(2)
    reserved(sale, [first])
    (entry,) = pending(sale)
    body = {"token": token_for(sale, second).sign(), "attempt": attempt}
    response = client.post(place_url(sale), body, content_type=JSON)
    arrived_at_ms = response.json()["arrived_at_ms"]
    moments = {"arrived_at_ms": arrived_at_ms, "sold_out_at_ms": entry.accepted_at_ms}
    assert_refused(response, 409, "sold_out", **moments)
    assert entry.accepted_at_ms <= arrived_at_ms <= redis_now_ms()
    page = place(client, sale, token_for(sale, second).sign(), HTML)
    assert_refused(page, 409, "sold_out")
    assert written_time(entry.accepted_at_ms) in page.text


@pytest.mark.parametrize("gone_in_ms", [None, 60_000])
def test_impossible_sold_out_time_is_left_out(
    client: Client, ledger: Redis, gone_in_ms: int | None
) -> None:
    sale, buyer = make_sale(stock=0), make_buyer()
    if gone_in_ms:
        gone_at_ms = redis_now_ms() + gone_in_ms
        change_state(sale.pk, sold_out_at_ms=gone_at_ms)
    response = place(client, sale, token_for(sale, buyer).sign())
    arrived_at_ms = response.json()["arrived_at_ms"]
    assert_refused(response, 409, "sold_out", arrived_at_ms=arrived_at_ms)
    client.cookies["django_language"] = "en"
    page = place(client, sale, token_for(sale, buyer).sign(), HTML)
    assert "No vouchers were left by then." in page.text


def written_time(moment_ms: int) -> str:
    """Return a moment as a page writes it where milliseconds decide."""
    local = timezone.localtime(dt.datetime.fromtimestamp(moment_ms / 1000, tz=dt.UTC))
    return f"{local:%H:%M:%S}.{moment_ms % 1000:03d}"


@pytest.mark.parametrize("written", [False, True])
def test_second_order_leads_to_the_first(client: Client, written: bool) -> None:
    sale, buyer = make_sale(stock=1), make_buyer()
    first, second = tokens_for(sale, [buyer, buyer])
    place(client, sale, first.sign())
    if written:
        fulfil_sale(sale_id=sale.pk)
    response = place(client, sale, second.sign())
    assert_refused(response, 409, "already_ordered", order_id=str(first.order_id))
    page = place(client, sale, second.sign(), HTML)
    assert (page.status_code, page["Location"]) == (303, receipt_path(first))


def test_redis_down_returns_503_and_a_page_can_resend_the_token(
    client: Client, lose_ledger: Callable[[], None]
) -> None:
    sale = make_sale()
    text = token_for(sale, make_buyer()).sign()
    lose_ledger()
    assert_refused(place(client, sale, text), 503, "unavailable")
    page = place(client, sale, text, HTML)
    assert_refused(page, 503, "unavailable")
    assert f'action="{place_url(sale)}"' in page.text
    assert f'name="token" value="{text}"' in page.text
    script = '"><script>alert(1)</script>'
    assert "<script>alert" not in place(client, sale, script, HTML).text


@both
def test_unreplicated_order_returns_503_and_keeps_its_unit(settings: Settings, accept: str) -> None:
    client = Client(headers={"Accept-Language": "en"})
    settings.SECKILL_LEDGER_REPLICAS, settings.SECKILL_LEDGER_REPLICAS_MS = 1, 1  # no replica
    sale = make_sale()
    token = token_for(sale, make_buyer())
    answer = place(client, sale, token.sign(), accept)
    assert_refused(answer, 503, "unavailable")
    assert ("Send the same token again" if accept == JSON else token.sign()) in answer.text
    settings.SECKILL_LEDGER_REPLICAS = 0
    assert place(client, sale, token.sign()).json()["order_id"] == str(token.order_id)


@both
def test_token_of_deleted_sale_returns_404(client: Client, accept: str) -> None:
    sale = make_sale(loaded=False)
    token = token_for(sale, make_buyer())
    SeckillVoucher.objects.all().delete()
    assert_refused(place(client, SeckillVoucher(pk=token.sale_id), token.sign(), accept), 404,
                   "not_found")  # fmt: skip


def test_answers_are_counted_by_status(client: Client) -> None:
    sale, before = make_sale(), {status: answers(status) for status in (202, 400)}
    place(client, sale, token_for(sale, make_buyer()).sign())
    place(client, sale, None)
    assert {status: answers(status) - count for status, count in before.items()} == {
        202: 1,
        400: 1,
    }


# --- GET token/ ----------------------------------------------------------------------------------


@pytest.mark.parametrize("begins_in_s", [-60, 600])
def test_buyer_gets_a_working_token_before_the_start(client: Client, begins_in_s: int) -> None:
    sale, buyer = make_sale(begins_in_s=begins_in_s), make_buyer()
    client.force_login(buyer)
    response = client.get(token_url(sale))
    assert response.status_code == 200
    assert response["Cache-Control"] == "private, no-store"
    body = response.json()
    assert body == {"token": body["token"], "expires_at_ms": epoch_ms(sale.ends_at) + 600_000}
    answer = place(client, sale, body["token"])
    assert answer.status_code == 202 if begins_in_s < 0 else answer.json()["code"] == "not_started"


def test_visitor_gets_no_token(client: Client) -> None:
    sale = make_sale()
    assert_refused(client.get(token_url(sale)), 401, "login_required")
    page = client.get(token_url(sale), headers={"Accept": HTML})
    assert (page.status_code, page["Location"]) == (
        302,
        f"/accounts/login/?next={token_url(sale)}",
    )


def test_ended_or_missing_sale_issues_no_token(client: Client) -> None:
    client.force_login(make_buyer())
    over = make_sale(begins_in_s=-60, ends_in_s=-1)
    assert_refused(client.get(token_url(over)), 409, "ended")
    assert_refused(client.get(f"/vouchers/{over.pk + 1}/token/"), 404, "not_found")


def test_token_needs_redis_and_get(client: Client, lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    client.force_login(make_buyer())
    response = client.post(token_url(sale))
    assert_refused(response, 405, "invalid")
    assert response["Allow"] == "GET, HEAD"
    assert client.head(token_url(sale)).status_code == 200
    lose_ledger()
    assert_refused(client.get(token_url(sale)), 503, "unavailable")


# --- GET me/?sale=<id> ----------------------------------------------------------------------------


def me_url(sale: SeckillVoucher) -> str:
    return f"/me/?sale={sale.pk}"


def mine(client: Client, sale: SeckillVoucher) -> dict[str, Any]:
    """Return what the signed-in buyer has of a sale, without who, when and the token."""
    response = client.get(me_url(sale))
    assert response.status_code == 200
    assert response["Cache-Control"] == "private, no-store"
    body = dict(response.json()["sale"])
    assert abs(body.pop("server_time_ms") - now_ms()) < 60_000
    for name in ("buyer_id", "token", "expires_at_ms"):
        del body[name]
    return body


NOTHING = {
    **dict.fromkeys(("order_id", "status", "pay_by_ms", "place", "status_url", "own_state")),
    **{"holds": 0, "limit": 1, "may_buy": True, "waits": False},
}


def test_buyer_without_orders_may_buy(shopper: Client, buyer: User) -> None:
    sale = make_sale()
    reserved(sale, [make_buyer()])
    assert mine(shopper, sale) == NOTHING
    assert shopper.get(me_url(sale)).json()["sale"]["buyer_id"] == str(buyer.pk)


def test_buyer_status_follows_an_order_to_its_end(shopper: Client, buyer: User) -> None:
    sale, (_, token) = reserved_sale([make_buyer(), buyer])
    held = {
        **NOTHING,
        "order_id": str(token.order_id),
        "status_url": receipt_path(token),
        "holds": 1,
        "may_buy": False,
    }
    queued = {"status": "queued", "own_state": "queued", "place": 2, "poll_after_ms": 300}
    assert mine(shopper, sale) == {**held, **queued}
    fulfil_sale(sale_id=sale.pk)
    order = VoucherOrder.objects.get(pk=token.order_id)
    assert order.pay_by
    pay_by_ms = epoch_ms(order.pay_by)
    unpaid = {"status": "unpaid", "own_state": "yours", "pay_by_ms": pay_by_ms}
    assert mine(shopper, sale) == {**held, **unpaid}
    pay(order)
    assert mine(shopper, sale) == {**held, "status": "paid", "own_state": "already_ordered"}
    refund_order(order_id=order.pk, by=Actor.buyer(buyer.pk), now=timezone.now())
    finish_refunds(now=timezone.now())
    assert mine(shopper, sale) == NOTHING


def test_order_to_pay_soonest_is_shown_first(shopper: Client, buyer: User) -> None:
    sale = make_sale(limit=4, loaded=False)
    orders = [make_order(sale, buyer, order_id=n, unit=n) for n in (1, 2, 3)]
    for order, minutes in zip(orders, (None, 9, 5), strict=True):
        if minutes is None:
            order.status = OrderStatus.PAID
        else:
            order.pay_by = timezone.now() + dt.timedelta(minutes=minutes)
        order.save()
    found = mine(shopper, sale)
    assert (found["order_id"], found["status"]) == ("3", "unpaid")
    assert (found["holds"], found["limit"], found["may_buy"]) == (3, 4, True)
    make_order(sale, buyer, order_id=4, unit=4)
    assert mine(shopper, sale)["own_state"] == "yours"


def test_queued_order_is_shown_before_a_paid_one(shopper: Client, buyer: User) -> None:
    sale = make_sale(limit=3, loaded=False)
    make_order(sale, buyer, order_id=1, unit=2, status=OrderStatus.PAID)
    make_order(sale, buyer, order_id=2, unit=3, status=OrderStatus.USED)
    assert mine(shopper, sale)["order_id"] == "2"
    load_sale(sale_id=sale.pk)
    (token,) = reserved(sale, [buyer])
    assert mine(shopper, sale)["order_id"] == str(token.order_id)


@pytest.mark.parametrize("status", ["cancelled", "expired", "refunded"])
def test_ended_order_is_shown_if_it_bars_another(shopper: Client, buyer: User, status: str) -> None:
    order = make_order(make_sale(rebuy=False, loaded=False), buyer, status=OrderStatus(status))
    found = mine(shopper, order.seckill_voucher)
    assert (found["order_id"], found["status"]) == (str(order.pk), status)
    assert (found["holds"], found["may_buy"], found["own_state"]) == (0, False, "barred")


def test_buyer_status_shows_own_orders_only(shopper: Client, buyer: User) -> None:
    sale, other = make_sale(loaded=False), make_buyer()
    make_order(make_sale(), buyer)
    make_order(sale, other)
    make_waiting(sale, other, order_id=9)
    assert mine(shopper, sale) == NOTHING
    make_waiting(sale, buyer, order_id=10)
    assert mine(shopper, sale) == {**NOTHING, "waits": True}


# --- GET orders/<order_id>/ ----------------------------------------------------------------------


def ask(client: Client, token: PurchaseToken, by: str, accept: str = JSON) -> Any:
    """Ask for a receipt as its owner, by session or by the token in the header."""
    headers = {"Accept": accept}
    if by == "session":
        client.force_login(User.objects.get(pk=token.user_id))
    else:
        headers |= the_token_header(token)
    return client.get(receipt_path(token), headers=headers)


by_either = pytest.mark.parametrize("by", ["session", "token"])


@by_either
def test_receipt_of_queued_unpaid_and_refused_order(client: Client, by: str) -> None:
    sale, (buyer, closed) = make_sale(), make_buyers(2)
    token, refused = reserved(sale, [buyer, closed])
    expected: dict[str, Any] = {
        "order_id": str(token.order_id),
        "purchase": str(token.order_id),
        "voucher_id": str(sale.pk),
        "status": "queued",
        "reason": "",
        "price_cents": None,
        "accepted_at_ms": None,
        "pay_by_ms": None,
        "extended": False,
        "code": "",
        "refundable": False,
        "payment": "",
        "late_payment": "",
        "status_url": receipt_path(token),
        "place": 1,
        "poll_after_ms": 300,
    }
    response = ask(client, token, by)
    assert response.status_code == 200
    assert response["Cache-Control"] == "private, no-store"
    body = response.json()
    assert abs(body.pop("server_time_ms") - now_ms()) < 60_000
    assert body == expected

    User.objects.filter(pk=closed.pk).update(is_active=False)
    fulfil_sale(sale_id=sale.pk)
    body = ask(client, token, by).json()
    assert abs(body.pop("accepted_at_ms") - now_ms()) < 60_000
    to_pay_ms = body.pop("pay_by_ms") - body.pop("server_time_ms")
    assert (sale.pay_within_s - 60) * 1_000 < to_pay_ms <= sale.pay_within_s * 1_000 + 1_000
    for name in ("place", "poll_after_ms", "accepted_at_ms", "pay_by_ms"):
        del expected[name]
    assert body == {**expected, "status": "unpaid", "price_cents": PRICE_CENTS}

    body = ask(client, refused, "token").json()
    assert (body["status"], body["reason"]) == ("refused", "inactive_buyer")


def test_receipt_page_asks_visitor_to_sign_in(client: Client) -> None:
    (token,) = reserved(make_sale(), [make_buyer()])
    assert_refused(client.get(receipt_path(token)), 401, "login_required")
    page = client.get(receipt_path(token), headers={"Accept": HTML})
    assert page.status_code == 302
    assert page["Location"] == f"/accounts/login/?next={receipt_path(token)}"


@by_either
def test_other_buyers_order_returns_404(client: Client, by: str) -> None:
    sale, (owner, other) = make_sale(), make_buyers(2)
    (token,) = written_orders(sale, [owner])
    # An id tells whole seconds only: let the ledger be older than any of this test.
    change_state(sale.pk, loaded_at_ms=snapshot(sale_id=sale.pk).loaded_at_ms - 2_000)
    theirs = PurchaseToken(token.order_id, other.pk, sale.pk, token.expires_at_ms)
    assert_refused(ask(client, theirs, by), 404, "not_found")


@both
def test_unknown_order_or_sale_returns_404(client: Client, accept: str) -> None:
    sale = make_sale()
    client.force_login(make_buyer())
    for url in (
        f"/vouchers/{sale.pk}/orders/{id_minted(seconds_ago=-5)}/",
        f"/vouchers/{sale.pk}/orders/{2**63 - 1}/",
        f"/vouchers/{sale.pk + 1}/orders/{id_minted(seconds_ago=5)}/",
    ):
        assert_refused(client.get(url, headers={"Accept": accept}), 404, "not_found")


def old_token(sale: SeckillVoucher, buyer: User) -> PurchaseToken:
    """Return a token of an order that no ledger knows."""
    return PurchaseToken(id_minted(seconds_ago=30), buyer.pk, sale.pk, now_ms() + 60_000)


@pytest.mark.parametrize("by", ["token", "cookie"])
def test_unknown_id_older_than_ledger_is_lost(client: Client, by: str) -> None:
    old = old_token(make_sale(), make_buyer())
    if by == "cookie":
        client.cookies["purchase-token"] = old.sign()
    response = ask(client, old, "session" if by == "cookie" else by)
    assert response.status_code == 200
    assert (response.json()["status"], response.json()["reason"]) == ("refused", "lost")


@pytest.mark.parametrize("cookie", ["none", "junk", "another order's", "another buyer's"])
def test_made_up_old_id_is_not_found(client: Client, cookie: str) -> None:
    sale, (buyer, other) = make_sale(), make_buyers(2)
    old = old_token(sale, buyer)
    kept = {
        "junk": "x",
        "another order's": token_for(sale, buyer).sign(),
        "another buyer's": old._replace(user_id=other.pk).sign(),
    }
    if cookie in kept:
        client.cookies["purchase-token"] = kept[cookie]
    assert_refused(ask(client, old, "session"), 404, "not_found")


def test_forms_token_is_kept_for_its_receipt_alone(client: Client, ledger: Redis) -> None:
    sale, buyer = make_sale(), make_buyer()
    old = old_token(sale, buyer)
    client.force_login(buyer)
    assert place(client, sale, old.sign(), HTML).status_code == 303
    cookie = client.cookies["purchase-token"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == (
        receipt_path(old), True, "Lax",
    )  # fmt: skip
    ledger.flushdb()
    page = client.get(receipt_path(old), headers={"Accept": HTML})
    assert (page.status_code, page.context["receipt"]["reason"]) == (200, "lost")


@pytest.mark.parametrize("signed_in", ["nobody", "another", "owner"])
def test_token_alone_opens_no_voucher(client: Client, signed_in: str) -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer, status=OrderStatus.PAID)
    VoucherOrder.objects.filter(pk=order.pk).update(code="ABCD1234EFGH5678")
    token = PurchaseToken(order.pk, buyer.pk, sale.pk, now_ms() + 60_000)
    if signed_in != "nobody":
        client.force_login(buyer if signed_in == "owner" else make_buyer())
    body = ask(client, token, "token").json()
    assert body["status"] == "paid"
    assert body["code"] == ("ABCD-1234-EFGH-5678" if signed_in == "owner" else "")


def test_bad_token_opens_no_receipt(client: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    client.force_login(buyer)  # the session does not make good for a token that is sent
    expired = PurchaseToken(token.order_id, buyer.pk, sale.pk, now_ms() - 61_000)
    others = token_for(make_sale(), buyer)
    for text, status, code in (
        ("", 400, "invalid"),
        ("x" * 5_000, 400, "invalid"),
        ("é", 400, "invalid"),
        (token.sign()[:-1] + "-", 403, "bad_token"),
        (expired.sign(), 403, "bad_token"),
        (others.sign(), 403, "bad_token"),
    ):
        response = client.get(receipt_path(token), headers={"Purchase-Token": text})
        assert_refused(response, status, code)


def test_token_outranks_the_session(client: Client) -> None:
    sale, (owner, other) = make_sale(), make_buyers(2)
    (token,) = reserved(sale, [owner])
    client.force_login(other)
    response = client.get(receipt_path(token), headers=the_token_header(token))
    assert response.json()["status"] == "queued"


def test_deleted_account_receipt_needs_its_own_token(client: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    token, other = tokens_for(sale, [buyer, buyer])
    place(client, sale, token.sign())
    User.objects.filter(pk=buyer.pk).delete()
    fulfil_sale(sale_id=sale.pk)
    body = client.get(receipt_path(token), headers=the_token_header(token)).json()
    assert (body["status"], body["reason"]) == ("refused", "inactive_buyer")
    response = client.get(receipt_path(token), headers=the_token_header(other))
    assert_refused(response, 404, "not_found")


def test_receipt_answers_get_only(client: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    client.force_login(buyer)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        response = client.generic(method, receipt_path(token))
        assert response["Allow"] == "GET, HEAD"
        assert_refused(response, 405, "invalid")
    assert client.head(receipt_path(token)).status_code == 200


# --- Without the database ------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_order_is_accepted_while_database_is_down(
    client: Client, lose_database: Callable[[], None]
) -> None:
    sale = make_sale()
    token = token_for(sale, make_buyer())
    lose_database()
    assert place(client, sale, token.sign()).status_code == 202


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", slow_after(1, ["place", "token", "receipt", "receipt by token"]))
def test_database_down_returns_503(lose_database: Callable[[], None], what: str) -> None:
    sale, buyer = make_sale(loaded=what != "place"), make_buyer()
    client = Client(raise_request_exception=False)
    client.force_login(buyer)
    token = token_for(sale, buyer)
    lose_database()
    response = {
        "place": lambda: place(client, sale, token.sign()),
        "token": lambda: client.get(token_url(sale)),
        "receipt": lambda: client.get(receipt_path(token)),
        "receipt by token": lambda: client.get(
            receipt_path(token), headers=the_token_header(token)
        ),
    }[what]()
    assert_refused(response, 503, "unavailable")
