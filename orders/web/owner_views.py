"""The owner's actions: pay, cancel and refund an order, and the waiting list."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import Place, join, leave, place_of
from orders.models import VoucherOrder
from orders.payments.providers import current_provider
from orders.payments.refunds import refund_order
from orders.payments.service import Addresses, start_payment
from orders.receipts.service import find_receipt
from orders.web.order_api import login_required_answer
from orders.web.refusals import refusals_answered
from orders.web.request_parsing import read_order_request
from orders.web.serializers import receipt_json, waiting_json
from seckill_site.clock import now_ms
from seckill_site.web.responses import allow, for_owner, wants_html
from vouchers.models import SeckillVoucher

View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Require a session."""

    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.user.pk is None:
            return login_required_answer(request, back_to=_page_of(request))
        return for_owner(view(request, **kwargs))

    return wrapped


def _page_of(request: HttpRequest) -> str:
    """Return the page to come back to after the login: this one, or the one with the button."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    return request.path.rstrip("/").rpartition("/")[0] + "/"


# --- The owner's order ----------------------------------------------------------------------------


@allow("POST")
@refusals_answered
@signed_in
def pay(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Send the owner to the payment provider."""
    order = _own_order(request, sale_id, order_id)
    receipt_url = reverse("receipt", args=[sale_id, order_id])
    addresses = Addresses(
        return_url=request.build_absolute_uri(receipt_url),
        notify_url=request.build_absolute_uri(reverse("notify", args=[current_provider().name])),
    )
    pay_url = start_payment(order_id=order.pk, addresses=addresses, now=timezone.now())
    if wants_html(request):
        return HttpResponse(status=303, headers={"Location": pay_url})
    return JsonResponse({"order_id": str(order.pk), "status": order.status, "pay_url": pay_url})


@allow("POST")
@refusals_answered
@signed_in
def cancel(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Cancel the owner's unpaid order."""
    order = _own_order(request, sale_id, order_id)
    cancel_order(order_id=order.pk, by=Actor.buyer(request.user.pk), now=timezone.now())
    return _changed(request, sale_id, order_id)


@allow("POST")
@refusals_answered
@signed_in
def refund(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Refund the owner's paid and unused voucher."""
    order = _own_order(request, sale_id, order_id)
    refund_order(order_id=order.pk, by=Actor.buyer(request.user.pk), now=timezone.now())
    return _changed(request, sale_id, order_id)


def _own_order(request: HttpRequest, sale_id: int, order_id: int) -> VoucherOrder:
    return VoucherOrder.objects.get(pk=order_id, user=request.user.pk, seckill_voucher=sale_id)


def _changed(request: HttpRequest, sale_id: int, order_id: int) -> HttpResponse:
    if wants_html(request):
        receipt_url = reverse("receipt", args=[sale_id, order_id])
        return HttpResponse(status=303, headers={"Location": receipt_url})
    found = find_receipt(sale_id=sale_id, order_id=order_id, user_id=request.user.pk or 0)
    return JsonResponse(receipt_json(found, now_ms=now_ms()))


# --- The waiting list -----------------------------------------------------------------------------


@allow("GET", "HEAD", "POST")
@refusals_answered
@signed_in
def waiting(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Join the waiting list with a purchase token, or show the buyer's place in it."""
    user_id = request.user.pk or 0
    if request.method == "POST":
        token = read_order_request(request).token
        found = join(token_text=token, sale_id=sale_id, user_id=user_id, now_ms=now_ms())
        if wants_html(request):
            where = reverse("waiting", args=[sale_id])
            return HttpResponse(status=303, headers={"Location": where})
    else:
        found = place_of(sale_id=sale_id, user_id=user_id)
    return _place(request, sale_id, found)


@allow("POST")
@refusals_answered
@signed_in
def leave_line(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Leave the waiting list."""
    found = leave(sale_id=sale_id, user_id=request.user.pk or 0)
    if wants_html(request):
        where = reverse("purchase", args=[sale_id])
        if found.offered:
            where = reverse("receipt", args=[sale_id, found.order_id])
        return HttpResponse(status=303, headers={"Location": where})
    return JsonResponse(waiting_json(found, sale_id=sale_id))


def _place(request: HttpRequest, sale_id: int, found: Place) -> HttpResponse:
    if not wants_html(request):
        return JsonResponse(waiting_json(found, sale_id=sale_id))
    if found.offered:
        where = reverse("receipt", args=[sale_id, found.order_id])
        return HttpResponse(status=303, headers={"Location": where})
    sale = SeckillVoucher.objects.select_related("voucher").get(pk=sale_id)
    context = {"sale": sale, "place": found.place, "waiting": waiting_json(found, sale_id=sale_id)}
    return render(request, "orders/waiting.html", context)
