"""The buyer's pages: the purchase page and the list of one's orders."""

from __future__ import annotations

import time

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse

from orders.answers import answered
from orders.models import VoucherOrder
from orders.purchase import purchase_offer
from orders.receipts import receipt_of
from orders.views import login_required_answer, receipt_json
from seckill_site.responses import allow, wants_html
from vouchers.views import live_json

PAGE_ROWS = 20
VISITOR_SECONDS = 5


@allow("GET", "HEAD")
@answered
def purchase(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show a sale; to a signed-in buyer with a purchase token in its form."""
    offer = purchase_offer(
        sale_id=sale_id, user_id=request.user.pk, now_ms=time.time_ns() // 1_000_000
    )
    urls = {name: reverse(name, args=[sale_id]) for name in ("live", "token", "place-order")}
    context = {
        "sale": offer.sale,
        "live": live_json(offer.snapshot) if offer.snapshot else None,
        "state": offer.state.value,
        "remaining": offer.remaining,
        "total": offer.total,
        "token": offer.token,
        "held_order_id": offer.held_order_id,
        "urls": {
            "live": urls["live"],
            "token": urls["token"],
            "place": urls["place-order"],
            "login": f"{reverse('login')}?next={request.path}",
            "page": request.path,
        },
    }
    response = render(request, "orders/purchase.html", context)
    visitor = request.user.pk is None
    response["Cache-Control"] = (
        f"public, max-age={VISITOR_SECONDS}" if visitor else "private, no-store"
    )
    return response


@allow("GET", "HEAD")
def my_orders(request: HttpRequest) -> HttpResponseBase:
    """List the buyer's orders, newest first."""
    if request.user.pk is None:
        return login_required_answer(request)
    orders = VoucherOrder.objects.filter(user=request.user.pk)
    page = Paginator(
        orders.select_related("seckill_voucher__voucher").order_by("-pk"), PAGE_ROWS
    ).get_page(request.GET.get("page"))
    response: HttpResponse
    if wants_html(request):
        response = render(request, "orders/my_orders.html", {"page_obj": page})
    else:
        response = JsonResponse(
            {
                "orders": [receipt_json(receipt_of(order)) for order in page],
                "page": page.number,
                "pages": page.paginator.num_pages,
            }
        )
    response["Cache-Control"] = "private, no-store"
    return response
