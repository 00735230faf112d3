"""Customers in the admin, the page of each, and the waiting list of a sale by name."""

import logging

from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext

from backoffice.admin.pages import admin_page, check_may, office, office_page, read_sale, sale_at
from backoffice.customers import (
    MOST_ROWS,
    PER_PAGE,
    customers,
    find_customers,
    history_of,
    newest_buyers,
)
from backoffice.navigation import SEE_CUSTOMERS
from orders.models import WaitingEntry
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.admin.sale import SeckillVoucherAdmin

logger = logging.getLogger(__name__)

SEE_WAITING = "orders.view_waitingentry"
WAITING_PER_PAGE = 100


def customers_page(request: HttpRequest) -> HttpResponse:
    """Show the newest buyers, or the accounts that a search finds."""
    check_may(request, SEE_CUSTOMERS)
    search = request.GET.get("q", "")[:254]
    before = _id(request.GET.get("before", ""))
    ids = find_customers(search) if search.strip() else newest_buyers(before=before)
    return office_page(
        request,
        "customers/customers.html",
        title=gettext("Customers"),
        search=search,
        customers=customers(ids),
        next_before=ids[-1] if len(ids) == PER_PAGE and not search.strip() else None,
        is_first=before is None,
        most=PER_PAGE,
    )


def customer_page(request: HttpRequest, *, user_id: int) -> HttpResponse:
    """Show one customer; who looked at whom is in the log."""
    check_may(request, SEE_CUSTOMERS)
    try:
        history = history_of(user_id=user_id)
    except User.DoesNotExist:
        raise Http404 from None
    logger.info("user %s looks at customer %s", request.user.pk, user_id)
    return office_page(
        request,
        "customers/customer.html",
        title=gettext("Customer: %(name)s") % {"name": history.user.get_username()},
        history=history,
        most=MOST_ROWS,
        may_see_orders=request.user.has_perm("orders.view_voucherorder"),
        may_see_reports=request.user.has_perm("vouchers.view_seckillvoucher"),
    )


def waiting_page(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponse:
    sale = read_sale(model_admin, request, sale_at, sale_id=sale_id)
    check_may(request, SEE_WAITING)
    entries = WaitingEntry.objects.filter(seckill_voucher=sale).select_related("user")
    only_waiting = "all" not in request.GET
    if only_waiting:
        entries = entries.filter(live=True)
    shown = Paginator(entries, WAITING_PER_PAGE).get_page(request.GET.get("page"))
    return admin_page(
        model_admin,
        request,
        "vouchers/seckillvoucher/waiting.html",
        title=gettext("Waiting list: %(sale)s") % {"sale": sale},
        sale=sale,
        page_obj=shown,
        only_waiting=only_waiting,
        may_see_customers=request.user.has_perm(SEE_CUSTOMERS),
    )


def _id(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        return None
    return min(int(text), LARGEST_ID)


office.add_page("customers/", customers_page, name="customers")
office.add_page("customers/<id:user_id>/", customer_page, name="customer")
