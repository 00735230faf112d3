"""The export of orders in the admin: what its list shows, or what is selected there."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from backoffice.order_export import export_orders
from orders.models import VoucherOrder

logger = logging.getLogger(__name__)


def export_url(model_admin: Any) -> URLPattern:
    """Return the address of the export, named as is usual."""
    view = model_admin.admin_site.admin_view(partial(export_list, model_admin=model_admin))
    url: URLPattern = path("export/", view, name="orders_voucherorder_export")
    return url


def export_list(request: HttpRequest, *, model_admin: Any) -> HttpResponseBase:
    """Answer the orders that the list shows with the same query."""
    if not model_admin.has_export_permission(request):
        raise PermissionDenied
    try:
        shown = model_admin.get_changelist_instance(request)
    except IncorrectLookupParameters:
        # The list says what is wrong with a query.
        the_list = reverse("admin:orders_voucherorder_changelist")
        return HttpResponseRedirect(f"{the_list}?{request.GET.urlencode()}")
    return _file(request, shown.queryset)


@admin.action(description=_("Export the selected orders (CSV)"), permissions=["export"])
def export_selected(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[VoucherOrder]
) -> HttpResponseBase:
    return _file(request, queryset)


def _file(request: HttpRequest, orders: QuerySet[VoucherOrder]) -> HttpResponseBase:
    codes = request.user.has_perm("orders.redeem_voucherorder")
    logger.info("user %s exports orders: %s", request.user.pk, request.get_full_path())
    now = timezone.now()
    parts = export_orders(orders=orders, codes=codes, now=now)
    name = f"orders-{timezone.localtime(now):%Y-%m-%d}.csv"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-store",
        "X-Accel-Buffering": "no",  # nginx: to the browser as it comes
    }
    return StreamingHttpResponse(
        (part.text for part in parts), content_type="text/csv; charset=utf-8", headers=headers
    )
