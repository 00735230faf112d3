"""Rehearsals in the admin: start, progress, cancellation and verdict."""

from functools import partial
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminIntegerFieldWidget
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import (
    SALE,
    ReadOnlyAdmin,
    check_may,
    log_change,
    office,
    sale_page,
    timestamp_column,
)
from backoffice.job_engine import UNAVAILABLE
from backoffice.navigation import REHEARSE
from backoffice.rehearsal.http_client import BadAddress
from backoffice.rehearsal.service import (
    busy_sales,
    cancel_rehearsal,
    publish_rehearsal,
    start_rehearsal,
)
from backoffice.rehearsal.texts import headline, outcome, progress_json, tables
from orders.models import Rehearsal
from seckill_site.clocks.database import database_now
from seckill_site.web.admin_lists import column, pill
from seckill_site.web.form_keys import make_once
from seckill_site.web.large_lists import TypedFilter
from seckill_site.web.responses import for_owner
from vouchers.catalogue.history import entry
from vouchers.catalogue.staff_texts import NO_ANSWER, StaffRefusal
from vouchers.models import MAX_STOCK, SeckillVoucher

MAX_BUYERS = 5_000
"""The limit in the admin. For more, use the command on a separate machine."""

CONNECTIONS = 100
SHOWN_SALES = 5

_PAGE = "admin:orders_rehearsal_change"


class RehearseForm(forms.Form):
    """The size of a rehearsal."""

    buyers = forms.IntegerField(
        label=_("Buyers"),
        min_value=1,
        max_value=MAX_BUYERS,
        widget=AdminIntegerFieldWidget,
        help_text=_("Created for the rehearsal and removed afterwards. At most 5,000."),
    )
    stock = forms.IntegerField(
        label=_("Vouchers offered"),
        min_value=1,
        max_value=MAX_STOCK,
        widget=AdminIntegerFieldWidget,
    )
    duplicates = forms.IntegerField(
        label=_("Percentage that presses twice"),
        min_value=0,
        max_value=100,
        widget=AdminIntegerFieldWidget,
        help_text=_("This many buyers in a hundred press twice, half of them in a second tab."),
    )
    anyway = forms.BooleanField(
        label=_("Rehearse anyway, although buyers are here or about to arrive"), required=False
    )

    def __init__(self, *args: Any, busy: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if busy:
            self.fields["anyway"].required = True
        else:
            del self.fields["anyway"]


@sale_page("rehearse/", name="sale-rehearse")
def rehearse_sale(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    check_may(request, REHEARSE)
    sales = office.get_model_admin(SeckillVoucher).get_queryset(request)
    sale: SeckillVoucher = get_object_or_404(sales, pk=sale_id)
    busy = busy_sales(now=database_now())
    initial = {
        "buyers": min(max(2 * sale.stock, 100), MAX_BUYERS),
        "stock": sale.stock,
        "duplicates": 10,
    }
    form = RehearseForm(request.POST or None, initial=initial, busy=bool(busy))
    if form.is_valid() and (rehearsal_id := _begin(request, sale, form)):
        return HttpResponseRedirect(reverse(_PAGE, args=[rehearsal_id]))
    return office.show(
        request,
        "vouchers/seckillvoucher/rehearse.html",
        opts=SALE,
        title=gettext("Rehearse: %(sale)s") % {"sale": sale},
        sale=sale,
        form=form,
        busy=busy[:SHOWN_SALES],
        busy_more=max(0, len(busy) - SHOWN_SALES),
        yes=gettext("Rehearse now"),
        back=reverse("admin:vouchers_seckillvoucher_change", args=[sale.pk]),
        url=settings.SECKILL_REHEARSAL_URL,
    )


def _begin(request: HttpRequest, sale: SeckillVoucher, form: RehearseForm) -> str:
    """Start a rehearsal; if that is refused, add the error to the form and return nothing."""
    sizes = {name: form.cleaned_data[name] for name in ("buyers", "stock")}

    def start() -> int:
        rehearsal = start_rehearsal(
            sale_id=sale.pk,
            **sizes,
            duplicates=form.cleaned_data["duplicates"],
            connections=CONNECTIONS,
            url=settings.SECKILL_REHEARSAL_URL,
            by=request.user.pk,
        )
        log_change(request, sale, entry(("rehearsed", sizes)))
        turn = {"rehearsal_id": rehearsal.pk, "turn": rehearsal.turn}
        transaction.on_commit(partial(publish_rehearsal, **turn))
        return rehearsal.pk

    try:
        return make_once(request, f"rehearsal of {sale.pk}", start)
    except StaffRefusal as error:
        form.add_error(None, str(error))
    except BadAddress as error:
        text = gettext("The address for rehearsals is not that of a web server: %(url)s")
        form.add_error(None, text % {"url": error})
    except UNAVAILABLE:
        form.add_error(None, NO_ANSWER)
    except SeckillVoucher.DoesNotExist:
        form.add_error(None, gettext("The sale has been deleted."))
    return ""


@admin.register(Rehearsal)
class RehearsalAdmin(ReadOnlyAdmin):
    """The progress of each rehearsal, and its verdict."""

    list_display = ("__str__", "sale", "how", "buyers", "stock", "by", "created")
    list_select_related = ("actor", "seckill_voucher__voucher")
    list_filter = ("phase", ("seckill_voucher", TypedFilter))
    actions = None
    fields = (
        "sale", "buyers", "stock", "duplicates", "connections", "url", "by", "created",
        "changed",
    )  # fmt: skip
    sale = column(_("sale"), lambda it: str(it.seckill_voucher), ordering="seckill_voucher")
    created = timestamp_column("created_at", _("started"))
    changed = timestamp_column("changed_at", _("last activity"))

    class Media:
        css = {"all": ["seckill/rehearsal.css"]}

    @admin.display(description=_("outcome"))
    def how(self, rehearsal: Rehearsal) -> str:
        text = outcome(rehearsal)
        if rehearsal.running:
            return pill("warn", text)
        return pill("good" if headline(rehearsal)[1] == "right" else "bad", text)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the progress or the verdict."""
        rehearsal: Rehearsal = context["original"]
        context["progress"] = progress_json(rehearsal, now=database_now())
        if not rehearsal.running:
            context["headline"], context["verdict_is"] = headline(rehearsal)
            context["tables"] = tables(rehearsal)
        return super().render_change_form(request, context, *args, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: Rehearsal | None = None) -> bool:
        """Show a rehearsal to everyone who may start rehearsals."""
        return request.user.has_perm(REHEARSE) or super().has_view_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Rehearsal | None = None) -> bool:
        """Allow everyone who may delete sales to delete a rehearsal, unless it is running."""
        may_delete = request.user.has_perm("vouchers.delete_seckillvoucher")
        return may_delete and obj is not None and not obj.running


@office.page("orders/rehearsal/<id:rehearsal_id>/progress/", name="orders_rehearsal_progress")
def progress(request: HttpRequest, *, rehearsal_id: int) -> HttpResponse:
    """Return the progress of a rehearsal, for the script of its page."""
    check_may(request, REHEARSE, "orders.view_rehearsal", "orders.change_rehearsal")
    rehearsal = get_object_or_404(Rehearsal, pk=rehearsal_id)
    return for_owner(JsonResponse(progress_json(rehearsal, now=database_now())))


@office.page("orders/rehearsal/<id:rehearsal_id>/cancel/", name="orders_rehearsal_cancel")
def cancel(request: HttpRequest, *, rehearsal_id: int) -> HttpResponse:
    check_may(request, REHEARSE)
    rehearsal = get_object_or_404(Rehearsal, pk=rehearsal_id)
    if request.method == "POST":
        try:
            turn = cancel_rehearsal(rehearsal_id=rehearsal_id).turn
        except StaffRefusal as error:
            messages.warning(request, str(error))
        else:
            publish_rehearsal(rehearsal_id=rehearsal_id, turn=turn)
            log_change(request, rehearsal, entry(("rehearsal_cancelled", {})))
            text = gettext("Cancelled. Everything it created will be removed.")
            messages.success(request, text)
    return HttpResponseRedirect(reverse(_PAGE, args=[rehearsal_id]))
