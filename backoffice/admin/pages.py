"""Shared parts of the back office's pages: read-only models, columns, links, pages of a sale."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.options import BaseModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import TextChoices
from django.http import Http404, HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from backoffice.site import BackOffice
from seckill_site.clocks.database import database_now
from seckill_site.web.admin_lists import column, moment, pill
from seckill_site.web.responses import for_owner
from vouchers.admin.history import CodedHistory
from vouchers.models import SeckillVoucher

T = TypeVar("T")

office: BackOffice = admin.site  # type: ignore[assignment]
"""The admin site, to which modules add their pages."""


class ReadOnlyAdmin(CodedHistory):
    """An admin of rows that only processes create and change."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def timestamp_column(field: str, description: Any) -> Callable[[Any, Any], str]:
    return column(description, lambda row: moment(getattr(row, field)), ordering=field)


def pill_column(
    field: str, description: Any, tones: Mapping[str, str]
) -> Callable[[Any, Any], SafeString]:
    """Return a column that shows a field with choices as a pill; ``tones`` are its colours."""

    def shown(row: Any) -> SafeString:
        return pill(tones.get(getattr(row, field), ""), getattr(row, f"get_{field}_display")())

    return column(description, shown, ordering=field)


def labels(values: Iterable[str], choices: type[TextChoices]) -> str:
    """Return the labels of those values that are choices."""
    return ", ".join(str(choices(it).label) for it in values if it in choices)


def sale_url(
    model_admin: BaseModelAdmin[Any],
    route: str,
    view: Callable[..., HttpResponseBase],
    name: str,
    **extra: str,
) -> URLPattern:
    """Return the URL pattern of a page below a sale's own page."""
    wrapped = model_admin.admin_site.admin_view(partial(view, model_admin))
    return path(f"<id:sale_id>/{route}", wrapped, extra, name=name)


def office_page(
    request: HttpRequest, template: str, *, status: int = 200, **context: Any
) -> TemplateResponse:
    """Return a page that belongs to no model, with the header of the admin."""
    return _page(request, template, {**office.each_context(request), **context}, status)


def read_sale(
    model_admin: BaseModelAdmin[Any],
    request: HttpRequest,
    read: Callable[..., T],
    *,
    sale_id: int,
) -> T:
    """Read the current data for a page of a sale."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    try:
        return read(sale_id=sale_id, now=database_now())
    except SeckillVoucher.DoesNotExist:
        raise Http404 from None


def sale_at(*, sale_id: int, now: dt.datetime) -> SeckillVoucher:
    """Return the sale itself, for ``read_sale``."""
    return SeckillVoucher.objects.select_related("voucher").get(pk=sale_id)


def admin_page(
    model_admin: BaseModelAdmin[Any],
    request: HttpRequest,
    template: str,
    *,
    status: int = 200,
    **context: Any,
) -> TemplateResponse:
    """Return a page with the header and breadcrumbs of an admin."""
    shared = {**model_admin.admin_site.each_context(request), "opts": model_admin.opts}
    return _page(request, template, {**shared, **context}, status)


def _page(
    request: HttpRequest, template: str, context: dict[str, Any], status: int
) -> TemplateResponse:
    page = TemplateResponse(request, f"admin/{template}", context, status=status)
    for_owner(page)
    return page


def check_may(request: HttpRequest, *permissions: str) -> None:
    """Refuse the page to whoever has none of these permissions."""
    if not any(map(request.user.has_perm, permissions)):
        raise PermissionDenied


def is_owner(request: HttpRequest) -> bool:
    """Return whether the user is an owner of the shop, who may do everything."""
    return bool(request.user.is_active and getattr(request.user, "is_superuser", False))


def order_link(order_id: int) -> str:
    """Return a link to an order's page, with its id as the text."""
    url = reverse("admin:orders_voucherorder_change", args=[order_id])
    return format_html('<a href="{}">{}</a>', url, order_id)
