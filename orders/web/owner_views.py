"""What an owner does with an order: pay, cancel, give back; and who waits for one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt

from orders.lifecycle.cancellation import Busy, cancel_order
from orders.lifecycle.transitions import Actor
from orders.lifecycle.waiting_list import Place, join, leave, place_of
from orders.models import VoucherOrder
from orders.payments.providers import BadNotification, current_provider
from orders.payments.refunds import refund_order
from orders.payments.service import Addresses, start_payment, take_notification
from orders.receipts.service import find_receipt
from orders.web.order_api import login_required_answer, receipt_json
from orders.web.refusals import answered
from orders.web.request_parsing import read_order_request
from seckill_site.clock import now_ms
from seckill_site.web.responses import allow, for_owner, problem, unavailable, wants_html
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SeckillVoucher

logger = logging.getLogger(__name__)

LARGEST_NOTIFICATION_BYTES = 64 * 1024

View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Let only somebody with a session through."""

    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.user.pk is None:
            return login_required_answer(request, back_to=_page_of(request))
        return for_owner(view(request, **kwargs))

    return wrapped


def _page_of(request: HttpRequest) -> str:
    """Return the page to go back to: this one, or that of the button that was pressed."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    return request.path.rstrip("/").rpartition("/")[0] + "/"


# --- The owner's order ----------------------------------------------------------------------------


@allow("POST")
@answered
@signed_in
def pay(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Lead the owner to where the order is paid."""
    order = _own_order(request, sale_id, order_id)
    receipt_url = reverse("receipt", args=[sale_id, order_id])
    addresses = Addresses(
        return_url=request.build_absolute_uri(receipt_url),
        notify_url=request.build_absolute_uri(reverse("notify", args=[current_provider().name])),
    )
    pay_url = start_payment(order_id=order.pk, addresses=addresses)
    if wants_html(request):
        return HttpResponse(status=303, headers={"Location": pay_url})
    return JsonResponse({"order_id": str(order.pk), "status": order.status, "pay_url": pay_url})


@allow("POST")
@answered
@signed_in
def cancel(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Cancel the owner's unpaid order."""
    order = _own_order(request, sale_id, order_id)
    cancel_order(order_id=order.pk, by=Actor.buyer(request.user.pk))
    return _changed(request, sale_id, order_id)


@allow("POST")
@answered
@signed_in
def refund(request: HttpRequest, *, sale_id: int, order_id: int) -> HttpResponse:
    """Give the owner's paid and unused voucher back."""
    order = _own_order(request, sale_id, order_id)
    refund_order(order_id=order.pk, by=Actor.buyer(request.user.pk))
    return _changed(request, sale_id, order_id)


def _own_order(request: HttpRequest, sale_id: int, order_id: int) -> VoucherOrder:
    """Return the order, if it is this buyer's and of this sale; else there is no such order."""
    return VoucherOrder.objects.get(pk=order_id, user=request.user.pk, seckill_voucher=sale_id)


def _changed(request: HttpRequest, sale_id: int, order_id: int) -> HttpResponse:
    if wants_html(request):
        receipt_url = reverse("receipt", args=[sale_id, order_id])
        return HttpResponse(status=303, headers={"Location": receipt_url})
    found = find_receipt(sale_id=sale_id, order_id=order_id, user_id=request.user.pk or 0)
    return JsonResponse(receipt_json(found))


# --- The waiting list -----------------------------------------------------------------------------


@allow("GET", "HEAD", "POST")
@answered
@signed_in
def waiting(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Join the waiting list with a purchase token, or see one's place in it."""
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
@answered
@signed_in
def leave_line(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Leave the waiting list."""
    found = leave(sale_id=sale_id, user_id=request.user.pk or 0)
    if wants_html(request):
        where = reverse("purchase", args=[sale_id])
        if found.has_come:
            where = reverse("receipt", args=[sale_id, found.order_id])
        return HttpResponse(status=303, headers={"Location": where})
    return JsonResponse(_place_json(sale_id, found))


def _place(request: HttpRequest, sale_id: int, found: Place) -> HttpResponse:
    if not wants_html(request):
        return JsonResponse(_place_json(sale_id, found))
    if found.has_come:
        where = reverse("receipt", args=[sale_id, found.order_id])
        return HttpResponse(status=303, headers={"Location": where})
    sale = SeckillVoucher.objects.select_related("voucher").get(pk=sale_id)
    context = {"sale": sale, "place": found.place, "waiting": _place_json(sale_id, found)}
    return render(request, "orders/waiting.html", context)


def _place_json(sale_id: int, found: Place) -> dict[str, Any]:
    return {
        "order_id": str(found.order_id),
        "voucher_id": str(sale_id),
        "waiting": found.place is not None,
        "place": found.place,
        "offered": found.has_come,
        "status_url": reverse("receipt", args=[sale_id, found.order_id]),
    }


# --- The provider's word --------------------------------------------------------------------------


@csrf_exempt  # the provider's signature is the proof of who speaks
@allow("POST")
def notify(request: HttpRequest, *, provider: str) -> HttpResponseBase:
    """Take a payment provider's notification in; what is not taken in comes again."""
    try:
        body = request.read(LARGEST_NOTIFICATION_BYTES)
        answer = take_notification(provider_name=provider, headers=dict(request.headers), body=body)
    except LookupError:
        return problem(request, status=404, code="not_found", message="no such provider")
    except (BadNotification, OSError) as error:
        logger.warning("a notification of %s was refused: %s", provider, error)
        return problem(request, status=400, code="invalid", message=str(error))
    except (Busy, LedgerUnavailable):
        return unavailable(request)
    return HttpResponse(answer, content_type="text/plain")
