"""The order path over HTTP: purchase token, order request, who is there, receipt."""

import datetime as dt
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from orders.lifecycle.waiting_list import price_when_joining
from orders.models import OrderStatus
from orders.payments.providers import offered_providers
from orders.placing.order_ids import mint_order_ids
from orders.placing.tokens import BadToken, MalformedToken, PurchaseToken, read_token
from orders.proof.publishing import evidence_of, has_list
from orders.receipts.service import find_receipt, find_units
from orders.receipts.token_admission import BuyerInSale, find_buyer_in_sale, judged
from orders.web.me_answers import me_answer, read_query, sale_json, token_json
from orders.web.order_answers import (
    Outcome,
    count_refusal,
    order_answer,
    owner_answer,
    request_order,
)
from orders.web.refusals import (
    REFUSED,
    Refusal,
    refusal_answer,
    refusal_of,
    refusal_response,
    refusals_answered,
)
from orders.web.request_parsing import InvalidRequest, read_order_request
from orders.web.room_answers import visitor_in
from orders.web.serializers import purchase_json, receipt_path
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.sessions import DESK, Buyer
from seckill_site.web.clients import client_address
from seckill_site.web.responses import allow, as_response, for_owner, problem, see_page, wants_html
from vouchers.models import SeckillVoucher
from vouchers.web.pace import count_me_request

TOKEN_COOKIE = "purchase-token"
"""The cookie of one receipt's address with the purchase token of its order."""


@csrf_exempt  # the token proves who asks; no cookie is read here
@allow("POST")
def place(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Accept or refuse one buyer."""
    order = None
    try:
        order = read_order_request(request)
        outcome: Outcome = request_order(
            order, sale_id=sale_id, now_ms=ledger_now_ms(), address=client_address(request.META)
        )
    except InvalidRequest as error:
        outcome = count_refusal(refusal_of(error), sale_id=sale_id)
    if not wants_html(request):
        answer = order_answer(outcome, path=request.path, language=get_language() or "")
        return as_response(answer)
    if isinstance(outcome, Refusal):
        return refusal_response(request, outcome, sale_id=sale_id, order=order)
    receipt_url = receipt_path(outcome.order_id, path=request.path)
    # For the receipt, which says how many of them the buyer got.
    wanted = f"?wanted={order.quantity}" if order and order.quantity > 1 else ""
    response = HttpResponse(status=303, headers={"Location": f"{receipt_url}{wanted}"})
    # Without JavaScript nothing else keeps the token, for a receipt that the ledger has lost.
    response.set_cookie(
        TOKEN_COOKIE,
        outcome.sign(),
        path=receipt_url,
        max_age=dt.timedelta(days=1),
        secure=settings.HTTPS_ONLY,
        httponly=True,
        samesite="Lax",
    )
    return response


def _kept_token(request: HttpRequest, sale_id: int) -> PurchaseToken | None:
    """Return the token in the receipt's cookie, if there is a valid one."""
    text = request.COOKIES.get(TOKEN_COOKIE)
    if text is None:
        return None
    try:
        return read_token(text, sale_id=sale_id, now_ms=ledger_now_ms())
    except (MalformedToken, BadToken):
        return None


@allow("GET", "HEAD")
def me(request: HttpRequest) -> HttpResponse:
    """Say who is signed in, and with ``?sale=`` what they have of that sale."""
    try:
        sale_id = read_query(request.META.get("QUERY_STRING", ""))
        sale = None
        user_id = request.user.pk
        if user_id is not None and sale_id is not None:
            found = judged(find_visitor(request, sale_id, user_id))
            order_id = _minted(found) if found.may_have_token else None
            sale = sale_json(found, order_id=order_id)
    except REFUSED as error:
        return as_response(refusal_answer(refusal_of(error), language=get_language() or ""))
    count_me_request()
    desk = request.session.get(DESK, "")
    buyer = None if user_id is None else Buyer(user_id, request.user.get_username(), desk)
    return as_response(me_answer(buyer, now_ms=ledger_now_ms(), sale=sale))


def _minted(buyer: BuyerInSale) -> int:
    return mint_order_ids(count=1, blocks=buyer.takes_several)[0]


def find_visitor(request: HttpRequest, sale_id: int, user_id: int) -> BuyerInSale:
    """Return the signed-in buyer in a public sale; raises as ``find_buyer_in_sale``."""
    visitor = visitor_in(request.META, sale_id=sale_id, user_id=user_id)
    return find_buyer_in_sale(sale_id=sale_id, user_id=user_id, visitor=visitor)


@allow("GET", "HEAD")
@refusals_answered
def token(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Issue a purchase token to the signed-in buyer."""
    user_id = request.user.pk
    if user_id is None:
        return login_required_answer(request)
    buyer = judged(find_visitor(request, sale_id, user_id))
    buyer.check_admitted()
    return as_response(owner_answer(token_json(buyer.token(_minted(buyer)))))


@allow("GET", "HEAD")
@refusals_answered
def receipt(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Show the owner their order, by session or by the purchase token in a header."""
    text = request.headers.get("Purchase-Token")
    by_session = text is None
    if text is None:
        user_id = request.user.pk
        token = _kept_token(request, sale_id)
        has_token = token is not None and token.user_id == user_id and token.order_id == order_id
    else:
        token = read_token(text, sale_id=sale_id, now_ms=ledger_now_ms())
        user_id, has_token = token.user_id, token.order_id == order_id
    if user_id is None:
        return login_required_answer(request)
    shown = find_receipt(
        sale_id=sale_id,
        order_id=order_id,
        user_id=user_id,
        has_token=has_token,
        by_session=by_session,
    )
    # A token outlives the session, and is kept in the browser: it opens no voucher by itself.
    if shown.code and user_id != request.user.pk:
        shown = replace(shown, code="", refundable=False)
    units = find_units(shown, user_id=user_id) if user_id == request.user.pk else []
    now_ms = ledger_now_ms()
    content = purchase_json(shown, units, now_ms=now_ms)
    if not wants_html(request):
        return as_response(owner_answer(content))
    if units and units[0].order_id != order_id:
        return for_owner(see_page("receipt", sale_id, units[0].order_id))
    sale = SeckillVoucher.objects.select_related("voucher__merchant").get(pk=sale_id)
    context = {"answer": content, "sale": sale, "providers": offered_providers()}
    context |= _shown_purchase(content, wanted=request.GET.get("wanted", ""))
    context["evidence"] = evidence = evidence_of(order_id=order_id)
    if evidence:  # the units were written side by side
        context["last_position"] = evidence.position + max(len(units), 1) - 1
    context["has_list"] = has_list(sale, now_ms=now_ms)
    context["joined_cents"] = price_when_joining(order_id=order_id)
    return for_owner(render(request, "orders/receipt.html", context))


def _shown_purchase(content: dict[str, Any], *, wanted: str) -> dict[str, Any]:
    """Return what a receipt's page shows of its purchase; ``wanted`` is the quantity asked for.

    The page shows the state of one unit, and each unit by itself once they differ or have codes.
    """
    units = content.get("units", [content])
    lead = next(it for it in units if it["order_id"] == content.get("lead", it["order_id"]))
    given = [it for it in units if it["status"] != OrderStatus.REFUSED]
    to_pay = [it for it in units if it["status"] == OrderStatus.UNPAID] or [lead]
    differ = len({it["status"] for it in units}) > 1 or any(it["code"] for it in units)
    return {
        "receipt": lead | {"status_url": content["status_url"]},
        "units": units if differ and len(units) > 1 else [],
        "count": len(units),
        "given": len(given),
        "wanted": int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 3 else 0,
        "to_pay": len(to_pay),
        "total_cents": sum(it["price_cents"] or 0 for it in to_pay),
        "given_cents": sum(it["price_cents"] or 0 for it in given),
    }


def login_required_answer(request: HttpRequest, *, back_to: str = "") -> HttpResponse:
    """Redirect a browser to the login and back; answer 401 to a program."""
    if wants_html(request):
        return redirect_to_login(back_to or request.get_full_path())
    return problem(request, status=401, code="login_required", message=_("Sign in to continue."))
