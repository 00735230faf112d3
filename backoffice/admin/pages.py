"""Shared parts of the back office's pages: read-only models, columns, links, pages of a sale."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import BaseModelAdmin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from seckill_site.formatting import NO_VALUE, timestamp


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin of rows that only processes create and change."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def timestamp_column(field: str, description: Any) -> Callable[[Any, Any], str]:
    """Return a column with the moment of a field."""

    @admin.display(description=description, ordering=field)
    def column(model_admin: Any, row: Any) -> str:
        moment = getattr(row, field)
        return timestamp(moment) if moment else NO_VALUE

    return column


def sale_url(
    model_admin: BaseModelAdmin[Any],
    route: str,
    view: Callable[..., HttpResponse],
    name: str,
    **extra: str,
) -> URLPattern:
    """Return the address of a page below a sale's own, for the admin of sales."""
    wrapped = model_admin.admin_site.admin_view(partial(view, model_admin))
    return path(f"<id:sale_id>/{route}", wrapped, extra, name=name)


def admin_page(
    model_admin: BaseModelAdmin[Any],
    request: HttpRequest,
    template: str,
    *,
    status: int = 200,
    **context: Any,
) -> TemplateResponse:
    """Return a page with the header and the breadcrumbs of an admin."""
    shared = {**model_admin.admin_site.each_context(request), "opts": model_admin.opts}
    return TemplateResponse(request, f"admin/{template}", {**shared, **context}, status=status)


def order_link(order_id: int) -> str:
    """Return a link to an order's page, with its id as the text."""
    url = reverse("admin:orders_voucherorder_change", args=[order_id])
    return format_html('<a href="{}">{}</a>', url, order_id)
