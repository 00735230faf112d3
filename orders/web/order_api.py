"""The order path over HTTP: purchase token, order request, what is one's own, receipt."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from orders.lifecycle.redemption import written_code
from orders.placing.service import place_order
from orders.placing.tokens import PurchaseToken, issue_token, read_token
from orders.receipts.purchase_page import Mine, what_is_mine
from orders.receipts.service import QUEUED, Receipt, find_receipt, poll_after_ms
from orders.web.refusals import UNAVAILABLE, answered, counted, unknown_yet
from orders.web.request_parsing import read_order_request
from seckill_site.clock import now_ms
from seckill_site.web.responses import allow, for_owner, problem, wants_html
from vouchers.catalogue.listing import public_sale
from vouchers.models import SeckillVoucher


@csrf_exempt  # the token is the proof of who asks; no cookie is read here
@counted
@allow("POST")
@answered
def place(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Accept or refuse one buyer."""
    order = read_order_request(request)
    try:
        token = place_order(token_text=order.token, sale_id=sale_id, now_ms=now_ms())
    except UNAVAILABLE:
        return unknown_yet(request, sale_id=sale_id, token=order.token)
    accepted = accepted_json(token, path=request.path)
    if wants_html(request):
        return HttpResponse(status=303, headers={"Location": accepted["status_url"]})
    return for_owner(JsonResponse(accepted, status=202))


def accepted_json(token: PurchaseToken, *, path: str) -> dict[str, Any]:
    """Return what an accepted buyer is told; ``path`` is that of the order request."""
    return {
        "order_id": str(token.order_id),
        "status": QUEUED,
        "status_url": f"{path}{token.order_id}/",  # as "receipt" is reversed, at no cost
        "poll_after_ms": poll_after_ms(place=None),
    }


@allow("GET", "HEAD")
@answered
def token(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Issue a purchase token to the signed-in buyer."""
    user_id = request.user.pk
    if user_id is None:
        return login_required_answer(request)
    sale = public_sale(sale_id=sale_id)
    issued = issue_token(sale=sale, user_id=user_id, now_ms=now_ms())
    return for_owner(JsonResponse({"token": issued.sign(), "expires_at_ms": issued.expires_at_ms}))


@allow("GET", "HEAD")
@answered
def mine(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Tell the signed-in buyer what they have of a sale."""
    user_id = request.user.pk
    if user_id is None:
        return login_required_answer(request)
    return for_owner(JsonResponse(mine_json(what_is_mine(sale_id=sale_id, user_id=user_id))))


def mine_json(found: Mine) -> dict[str, Any]:
    """Return what a buyer has of a sale; of an order only nulls where they have none."""
    content: dict[str, Any] = {
        "holds": found.holds,
        "limit": found.limit,
        "may_buy": found.may_buy,
        "waits": found.waits,
        "buyer_id": str(found.user_id),
        "server_time_ms": found.now_ms,
    }
    order = found.order
    if order is None:
        return content | dict.fromkeys(("order_id", "status", "pay_by_ms", "place", "status_url"))
    content |= {
        "order_id": str(order.order_id),
        "status": order.status,
        "pay_by_ms": order.pay_by_ms,
        "place": None,
        "status_url": reverse("receipt", args=[found.sale_id, order.order_id]),
    }
    return content | (_queue_json(order.place) if order.status == QUEUED else {})


@allow("GET", "HEAD")
@answered
def receipt(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Tell the owner what became of an order."""
    user_id, proven = _owner(request, sale_id, order_id)
    if user_id is None:
        return login_required_answer(request)
    found = find_receipt(sale_id=sale_id, order_id=order_id, user_id=user_id, proven=proven)
    content = receipt_json(found)
    if not wants_html(request):
        return for_owner(JsonResponse(content))
    sale = SeckillVoucher.objects.select_related("voucher").get(pk=sale_id)
    return for_owner(render(request, "orders/receipt.html", {"receipt": content, "sale": sale}))


def receipt_json(found: Receipt, *, path: str = "") -> dict[str, Any]:
    """Return a receipt as the contract words it; ``path`` is its own, where that is known."""
    content: dict[str, Any] = {
        "order_id": str(found.order_id),
        "voucher_id": str(found.sale_id),
        "status": found.status,
        "reason": found.reason,
        "price_cents": found.price_cents,
        "accepted_at_ms": found.accepted_at_ms,
        "pay_by_ms": found.pay_by_ms,
        "server_time_ms": now_ms(),
        "code": written_code(found.code) if found.code else "",
        "refundable": found.refundable,
        "late_payment": found.late_payment,
        "status_url": path or reverse("receipt", args=[found.sale_id, found.order_id]),
    }
    if found.status == QUEUED:
        content |= _queue_json(found.place)
    return content


def _queue_json(place: int | None) -> dict[str, Any]:
    return {"place": place, "poll_after_ms": poll_after_ms(place=place)}


def login_required_answer(request: HttpRequest, *, back_to: str = "") -> HttpResponse:
    """Lead a page to the login and back; tell a program that a session is needed."""
    if wants_html(request):
        return redirect_to_login(back_to or request.get_full_path())
    return problem(request, status=401, code="login_required", message=_("Sign in to go on."))


def _owner(request: HttpRequest, sale_id: int, order_id: int) -> tuple[int | None, bool]:
    """Return who asks, by the purchase token in the header or else by the session.

    And whether it is the token of this very order.
    """
    text = request.headers.get("Purchase-Token")
    if text is None:
        return request.user.pk, False
    token = read_token(text, sale_id=sale_id, now_ms=now_ms())
    return token.user_id, token.order_id == order_id
