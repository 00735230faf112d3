"""Pages that plan many sales: first a preview, then all are created or none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import AdminForm
from django.contrib.admin.models import ADDITION, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from seckill_site.clocks.database import database_now
from seckill_site.web.form_keys import make_once
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.admin.sale_list import list_of
from vouchers.catalogue.audience import SALE_RULES
from vouchers.catalogue.series import MOST_SALES, PlannedSale, create_sales, digest, plan_copies
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.forms.series import SeriesForm, series_like
from vouchers.models import SeckillVoucher


class PlanChanged(StaffRefusal):
    """The plan is not the one that was shown."""

    message = _("The sales have changed since your preview. Check them below once more.")


def folded(title: Any, *fields: str, description: Any = "") -> tuple[Any, dict[str, Any]]:
    """Return a part of a form that is folded."""
    return title, {"fields": fields, "description": description, "classes": ["collapse"]}


FURTHER = (
    folded(
        _("Who may buy"),
        *(it.form_field for it in SALE_RULES),
        description=_(
            "Buyers have to meet all of these rules. A change applies within a second, but not to "
            "buyers who are already allowed to buy."
        ),
    ),
    folded(_("Draw"), "mode", "draw_wait_s"),
    folded(
        _("After the purchase"),
        *("pay_within_s", "extendable", "rebuy", "refundable", "refund_unused"),
    ),
    folded(_("Waiting room"), "room", "room_rate", "room_shuffled"),
    folded(_("Against bots"), "work", "per_address"),
)
"""What most sales leave as it is, in the forms of a sale and of a series."""

FIELDSETS = (
    (_("When"), {"fields": (
        "voucher", "begins_at", ("length", "length_unit"), "sales", ("number", "unit"), "weekdays",
    )}),
    (_("Each sale"), {"fields": ("stock", "limit")}),
    *FURTHER,
)  # fmt: skip

INITIAL = {"length_unit": 60, "sales": 7, "number": 1, "unit": "days"}


def series_page(request: HttpRequest, *, model_admin: Any) -> HttpResponse:
    """Plan a series of sales of one voucher, show it, and create it once it is confirmed."""
    _require_add_permission(request, model_admin)
    sale = model_admin.get_object(request, request.GET.get("sale", ""))
    initial = {**INITIAL, **(series_like(sale=sale, now=database_now()) if sale else {})}
    form = SeriesForm(request.POST or None, initial=initial)
    group = SeckillVoucher._meta.get_field("group")
    offered = model_admin.formfield_for_foreignkey(group, request).queryset
    form.fields["group"].queryset = offered  # type: ignore[attr-defined]
    plan = form.plan if form.is_valid() else []
    if plan and (answer := _create_confirmed(request, model_admin, plan)):
        return answer
    shown = AdminForm(form, FIELDSETS, {}, (), model_admin)  # type: ignore[arg-type]
    media = model_admin.media + form.media
    context = {"adminform": shown, "errors": form.errors, "media": media}
    return _page(request, model_admin, gettext("Series of sales"), plan, context)


def copies_page(request: HttpRequest, *, model_admin: Any) -> HttpResponse:
    """Plan copies of the sales chosen in the list, show them, and create them."""
    _require_add_permission(request, model_admin)
    zone = timezone.get_default_timezone()
    plan = plan_copies(sales=chosen_sales(request, model_admin), now=database_now(), zone=zone)
    if not plan:
        text = gettext("These sales no longer exist.")
        model_admin.message_user(request, text, messages.ERROR)
        return redirect("admin:vouchers_seckillvoucher_changelist")
    if answer := _create_confirmed(request, model_admin, plan):
        return answer
    return _page(request, model_admin, gettext("Copy sales"), plan, {})


def _create_confirmed(
    request: HttpRequest, model_admin: Any, plan: Sequence[PlannedSale]
) -> HttpResponse | None:
    """Create the plan if it is the one that was shown; return None if it must be shown first."""
    if "_create" not in request.POST:
        return None
    try:
        ids = make_once(request, "plan", partial(_create, request, plan)).split(",")
    except StaffRefusal as error:
        model_admin.message_user(request, str(error), messages.WARNING)
        return None
    text = ngettext("%(count)s draft was created.", "%(count)s drafts were created.", len(ids))
    model_admin.message_user(request, text % {"count": len(ids)}, messages.SUCCESS)
    return HttpResponseRedirect(list_of(ids))


def _create(request: HttpRequest, plan: Sequence[PlannedSale]) -> str:
    """Create the sales of a plan that was shown, and return their ids."""
    if request.POST.get("looked_at") != digest(plan):
        raise PlanChanged
    sales = create_sales(plan=plan)
    LogEntry.objects.log_actions(
        user_id=request.user.pk or 0,
        queryset=sales,
        action_flag=ADDITION,
        change_message=[{"added": {}}],
    )
    return ",".join(str(it.pk) for it in sales)


def _page(
    request: HttpRequest,
    model_admin: ModelAdmin[SeckillVoucher],
    title: str,
    plan: Sequence[PlannedSale],
    context: dict[str, Any],
) -> HttpResponse:
    whole = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "plan": plan,
        "looked_at": digest(plan),
        "refused": any(planned.same_start for planned in plan),
        "zone": timezone.get_default_timezone_name(),
        **context,
    }
    return TemplateResponse(request, "admin/vouchers/seckillvoucher/series.html", whole)


def chosen_sales(request: HttpRequest, model_admin: Any) -> QuerySet[SeckillVoucher]:
    """Return the sales whose ids the address names."""
    ids = [int(it) for it in re.findall(r"\b[0-9]{1,18}\b", request.GET.get("ids", ""))]
    known = [sale_id for sale_id in ids[:MOST_SALES] if sale_id <= LARGEST_ID]
    sales: QuerySet[SeckillVoucher] = model_admin.get_queryset(request)
    return sales.select_related("voucher").filter(pk__in=known)


def _require_add_permission(request: HttpRequest, model_admin: Any) -> None:
    if not model_admin.has_add_permission(request):
        raise PermissionDenied
