"""The buyer's pages: the purchase page and My orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from orders.models import OrderStatus
from orders.receipts.purchase_page import purchase_offer
from orders.receipts.service import orders_of, receipt_of
from orders.web.order_api import login_required_answer
from orders.web.refusals import refusals_answered
from orders.web.serializers import buyer_status_json, receipt_json
from seckill_site.clock import now_ms
from seckill_site.web.responses import allow, for_owner, for_visitors, wants_html
from vouchers.web.fast_path import live_json

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

PAGE_ROWS = 20


class Filter(NamedTuple):
    """A part of the buyer's orders, chosen by ``?state=``."""

    state: str
    label: StrOrPromise
    statuses: tuple[OrderStatus, ...]


_NOT_OVER = (OrderStatus.UNPAID, OrderStatus.PAID)
ALL = Filter("", _("All"), tuple(OrderStatus))
FILTERS = (
    ALL,
    Filter("to-pay", _("To pay"), (OrderStatus.UNPAID,)),
    Filter("to-use", _("To use"), (OrderStatus.PAID,)),
    Filter("over", _("Past"), tuple(it for it in OrderStatus if it not in _NOT_OVER)),
)


@allow("GET", "HEAD")
@refusals_answered
def purchase(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show a sale; a signed-in buyer's form carries a purchase token."""
    user = request.user
    offer = purchase_offer(
        sale_id=sale_id, user_id=user.pk, now_ms=now_ms(), drafts_too=user.is_staff
    )
    context = {
        "sale": offer.sale,
        "live": live_json(offer.snapshot) if offer.snapshot else None,
        "state": offer.state.value,
        "remaining": offer.remaining,
        "total": offer.total,
        "token": offer.token,
        "mine": buyer_status_json(offer.buyer) if offer.buyer else None,
        "urls": _urls(request, sale_id),
    }
    return for_visitors(render(request, "orders/purchase.html", context), request)


@allow("GET", "HEAD")
def my_orders(request: HttpRequest) -> HttpResponseBase:
    """List the buyer's orders, newest first, filtered by ``?state=``."""
    if request.user.pk is None:
        return login_required_answer(request)
    state = request.GET.get("state")
    chosen = next((it for it in FILTERS if it.state == state), ALL)
    orders = orders_of(user_id=request.user.pk).filter(status__in=chosen.statuses)
    page = Paginator(orders, PAGE_ROWS).get_page(request.GET.get("page"))
    if wants_html(request):
        context = {"page_obj": page, "state": chosen.state, "filters": FILTERS}
        return for_owner(render(request, "orders/my_orders.html", context))
    now = now_ms()
    content = {
        "orders": [receipt_json(receipt_of(order), now_ms=now) for order in page],
        "page": page.number,
        "pages": page.paginator.num_pages,
    }
    return for_owner(JsonResponse(content))


def _urls(request: HttpRequest, sale_id: int) -> dict[str, str]:
    return {
        "live": reverse("live", args=[sale_id]),
        "mine": reverse("mine", args=[sale_id]),
        "token": reverse("token", args=[sale_id]),
        "place": reverse("place-order", args=[sale_id]),
        "login": f"{reverse('login')}?next={request.path}",
        "page": request.path,
    }
