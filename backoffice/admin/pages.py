"""Shared parts of the back office's pages: read-only models, columns, links, pages of a sale."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet, TextChoices
from django.forms import CheckboxSelectMultiple, ModelMultipleChoiceField
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.site import BackOffice, View
from seckill_site.clocks.database import database_now
from seckill_site.formatting import NO_VALUE, listed
from seckill_site.web.admin_lists import column, moment, pill
from seckill_site.web.text_files import read_texts
from vouchers.admin.history import CodedHistory
from vouchers.models import Merchant, SaleStage, SeckillVoucher

T = TypeVar("T")
TEXTS = read_texts(Path(__file__).with_name("texts.toml"))

office: BackOffice = admin.site  # type: ignore[assignment]
"""The admin site, to which modules add their pages."""

SALE = SeckillVoucher._meta
SEE_SALES = ("vouchers.view_seckillvoucher", "vouchers.change_seckillvoucher")

MOST_FOUND = 10_000
"""The most rows that a search finds by one column."""


class ReadOnlyAdmin(CodedHistory):
    """An admin of rows that only processes create and change.

    Its columns of people are names: few may follow the link that Django would make of them.
    """

    is_large = True
    by = column(_("by"), lambda row: str(row.actor or NO_VALUE), ordering="actor")
    buyer_name = column(_("buyer"), lambda row: str(row.user or NO_VALUE), ordering="user")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find whole values, each by its index: these tables are large."""
        if not (text := search_term.strip()):
            return queryset, False
        ids = set[int]()
        for name in self.get_search_fields(request):
            with suppress(ValueError):  # a text is no id
                rows = queryset.filter(**{name: text}).values_list("pk", flat=True)
                ids.update(rows[:MOST_FOUND])
        return queryset.filter(pk__in=ids), False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_delete_permission = has_change_permission


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
    return listed(str(choices(it).label) for it in values if it in choices)


def merchants_field() -> ModelMultipleChoiceField[Merchant]:
    """Return the field of a form that binds an account or a token to merchants."""
    return ModelMultipleChoiceField(
        Merchant.objects.all(),
        label=_("Redeems for"),
        required=False,
        widget=CheckboxSelectMultiple,
        help_text=_("Only vouchers of these merchants can be redeemed. None chosen: of all."),
    )


def merchant_names(ids: Iterable[int] | None) -> str:
    if ids is None:
        return gettext("all merchants")
    names = map(str, Merchant.objects.filter(pk__in=ids))
    return listed(names) or NO_VALUE


def sale_page(route: str, *, name: str, **extra: str) -> Callable[[View], View]:
    """Return a decorator that puts a view below a sale's own page."""
    return office.page(f"vouchers/seckillvoucher/<id:sale_id>/{route}", name=name, **extra)


def log_change(request: HttpRequest, row: Model, change: str) -> None:
    """Record a change of a row in its history."""
    office.get_model_admin(type(row)).log_change(request, row, change)


def read_sale(request: HttpRequest, read: Callable[..., T], *needed: str, sale_id: int) -> T:
    """Read the current data for a page of a sale, for which these permissions are needed too."""
    check_may(request, *SEE_SALES)
    for permission in needed:
        check_may(request, permission)
    try:
        return read(sale_id=sale_id, now=database_now())
    except SeckillVoucher.DoesNotExist:
        raise Http404 from None


def sale_at(*, sale_id: int, now: dt.datetime) -> SeckillVoucher:
    """Return the sale itself, for ``read_sale``, unless it is a rehearsal."""
    sales = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL)
    return sales.select_related("voucher").get(pk=sale_id)


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
