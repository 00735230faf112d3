"""Rehearsals in the admin: start, progress, cancellation and verdict."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminIntegerFieldWidget
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import ReadOnlyAdmin, admin_page, check_may, timestamp_column
from backoffice.job_engine import UNAVAILABLE
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
from seckill_site.web.responses import for_owner
from vouchers.admin.sale import SeckillVoucherAdmin
from vouchers.catalogue.history import entry
from vouchers.catalogue.staff_texts import NO_ANSWER, StaffRefusal
from vouchers.models import MAX_STOCK, SeckillVoucher

MAX_BUYERS = 5_000
"""The limit in the admin. For more, use the command on a separate machine."""

REHEARSE = "orders.add_rehearsal"
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
        label=_("Percentage of double clicks"),
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


def rehearse_sale(
    model_admin: SeckillVoucherAdmin, request: HttpRequest, *, sale_id: int
) -> HttpResponse:
    check_may(request, REHEARSE)
    sale = get_object_or_404(model_admin.get_queryset(request), pk=sale_id)
    busy = busy_sales(now=database_now())
    initial = {
        "buyers": min(max(2 * sale.stock, 100), MAX_BUYERS),
        "stock": sale.stock,
        "duplicates": 10,
    }
    form = RehearseForm(request.POST or None, initial=initial, busy=bool(busy))
    if form.is_valid() and (rehearsal := _begin(request, sale, form)):
        sizes = {"buyers": rehearsal.buyers, "stock": rehearsal.stock}
        model_admin.log_change(request, sale, entry(("rehearsed", sizes)))
        return HttpResponseRedirect(reverse(_PAGE, args=[rehearsal.pk]))
    return admin_page(
        model_admin,
        request,
        "vouchers/seckillvoucher/rehearse.html",
        title=gettext("Rehearse: %(sale)s") % {"sale": sale},
        sale=sale,
        form=form,
        busy=busy[:SHOWN_SALES],
        busy_more=max(0, len(busy) - SHOWN_SALES),
        yes=gettext("Rehearse now"),
        back=reverse("admin:vouchers_seckillvoucher_change", args=[sale.pk]),
        url=settings.SECKILL_REHEARSAL_URL,
    )


def _begin(request: HttpRequest, sale: SeckillVoucher, form: RehearseForm) -> Rehearsal | None:
    """Start a rehearsal; if that is refused, add the error to the form and return None."""
    sizes = {name: form.cleaned_data[name] for name in ("buyers", "stock", "duplicates")}
    try:
        rehearsal = start_rehearsal(
            sale_id=sale.pk,
            **sizes,
            connections=CONNECTIONS,
            url=settings.SECKILL_REHEARSAL_URL,
            by=request.user.pk,
        )
    except StaffRefusal as error:
        form.add_error(None, str(error))
    except BadAddress as error:
        text = gettext("SECKILL_REHEARSAL_URL is not the address of a web server: %(url)s")
        form.add_error(None, text % {"url": error})
    except UNAVAILABLE:
        form.add_error(None, NO_ANSWER)
    except SeckillVoucher.DoesNotExist:
        form.add_error(None, gettext("The sale has been deleted."))
    else:
        publish_rehearsal(rehearsal_id=rehearsal.pk, turn=rehearsal.turn)
        return rehearsal
    return None


@admin.register(Rehearsal)
class RehearsalAdmin(ReadOnlyAdmin):
    """The progress of each rehearsal, and its verdict."""

    list_display = ("__str__", "sale", "how", "buyers", "stock", "actor", "created")
    list_select_related = ("actor", "seckill_voucher__voucher")
    list_filter = ("phase", ("seckill_voucher", admin.RelatedOnlyFieldListFilter))
    actions = None
    fields = (
        "sale", "buyers", "stock", "duplicates", "connections", "url", "actor", "created",
        "changed",
    )  # fmt: skip
    sale = column(_("sale"), lambda it: str(it.seckill_voucher), ordering="seckill_voucher")
    created = timestamp_column("created_at", _("started"))
    changed = timestamp_column("changed_at", _("last activity"))

    class Media:
        css = {"all": ["seckill/rehearsal.css"]}

    def get_urls(self) -> list[URLPattern]:
        def url(route: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            view = self.admin_site.admin_view(view)
            return path(f"<id:rehearsal_id>/{route}/", view, name=f"orders_rehearsal_{name}")

        return [
            url("progress", self.progress, "progress"),
            url("cancel", self.cancel, "cancel"),
            *super().get_urls(),
        ]

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
        context["may_cancel"] = request.user.has_perm(REHEARSE)
        if not rehearsal.running:
            context["headline"], context["verdict_is"] = headline(rehearsal)
            context["tables"] = tables(rehearsal)
        return super().render_change_form(request, context, *args, **kwargs)

    def progress(self, request: HttpRequest, *, rehearsal_id: int) -> HttpResponse:
        """Return the progress of a rehearsal, for the script of its page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rehearsal = get_object_or_404(Rehearsal, pk=rehearsal_id)
        return for_owner(JsonResponse(progress_json(rehearsal, now=database_now())))

    def cancel(self, request: HttpRequest, *, rehearsal_id: int) -> HttpResponse:
        check_may(request, REHEARSE)
        rehearsal = get_object_or_404(Rehearsal, pk=rehearsal_id)
        if request.method == "POST":
            self._cancel(request, rehearsal)
        return HttpResponseRedirect(reverse(_PAGE, args=[rehearsal_id]))

    def _cancel(self, request: HttpRequest, rehearsal: Rehearsal) -> None:
        try:
            cancelled = cancel_rehearsal(rehearsal_id=rehearsal.pk)
        except StaffRefusal as error:
            self.message_user(request, str(error), messages.WARNING)
            return
        publish_rehearsal(rehearsal_id=cancelled.pk, turn=cancelled.turn)
        self.log_change(request, rehearsal, entry(("rehearsal_cancelled", {})))
        self.message_user(
            request, gettext("Cancelled. Everything it created will be removed."), messages.SUCCESS
        )

    def has_view_permission(self, request: HttpRequest, obj: Rehearsal | None = None) -> bool:
        """Show a rehearsal to everyone who may start rehearsals."""
        return request.user.has_perm(REHEARSE) or super().has_view_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Rehearsal | None = None) -> bool:
        """Allow everyone who may delete sales to delete a rehearsal, unless it is running."""
        may_delete = request.user.has_perm("vouchers.delete_seckillvoucher")
        return may_delete and obj is not None and not obj.running
