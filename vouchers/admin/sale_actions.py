"""Actions on the sales that are chosen in the admin's list."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from vouchers.catalogue.history import change_line
from vouchers.catalogue.sales import publish_sale
from vouchers.catalogue.series import MOST_SALES
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.rebuild import load_sale
from vouchers.models import SaleStage, SeckillVoucher


@admin.action(description=_("Publish"), permissions=["change"])
def publish(model_admin: Any, request: HttpRequest, queryset: QuerySet[SeckillVoucher]) -> None:
    """Publish the drafts among the chosen sales."""
    drafts = list(queryset.filter(stage=SaleStage.DRAFT))
    label = capfirst(SeckillVoucher._meta.get_field("stage").verbose_name)
    change = change_line(label, SaleStage.DRAFT.label, SaleStage.PUBLIC.label)
    for sale in drafts:
        with transaction.atomic():
            publish_sale(sale_id=sale.pk)
            model_admin.log_change(request, sale, change)
    if not drafts:
        text = gettext("None of these sales is a draft.")
        model_admin.message_user(request, text, messages.WARNING)
        return
    text = ngettext(
        "%(count)s sale was published.", "%(count)s sales were published.", len(drafts)
    ) % {"count": len(drafts)}
    model_admin.message_user(request, text, messages.SUCCESS)


@admin.action(description=_("Copy"), permissions=["add"])
def copy(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[SeckillVoucher]
) -> HttpResponse | None:
    """Open the form of a new sale like the one chosen, or the plan of several copies."""
    ids = list(queryset.order_by("pk").values_list("pk", flat=True)[: MOST_SALES + 1])
    if len(ids) > MOST_SALES:
        text = gettext("At most %(most)s sales can be copied at once.") % {"most": MOST_SALES}
        model_admin.message_user(request, text, messages.ERROR)
        return None
    if len(ids) == 1:
        return HttpResponseRedirect(reverse("admin:sale-copy", args=ids))
    listed = ",".join(map(str, ids))
    return HttpResponseRedirect(f"{reverse('admin:sale-copies')}?ids={listed}")


@admin.action(description=_("Load into Redis"), permissions=["run"])
def load_into_redis(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[SeckillVoucher]
) -> None:
    """Load the ledgers now instead of at the first buyer."""
    try:
        for sale in queryset:
            load_sale(sale_id=sale.pk)
    except LedgerUnavailable:
        text = gettext("Redis did not respond. Try again.")
        model_admin.message_user(request, text, messages.ERROR)
        return
    model_admin.message_user(request, gettext("Loaded."), messages.SUCCESS)
