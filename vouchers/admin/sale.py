"""The admin of sales: create them, edit them while they run, see what is left."""

import re
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import models, transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from seckill_site.clocks.database import database_now
from seckill_site.face.site_face import shop_name
from seckill_site.formatting import grouped
from seckill_site.web.admin_forms import ChangedMeanwhile
from seckill_site.web.large_lists import TypedFilter
from vouchers.admin.history import RecordedAdmin
from vouchers.admin.sale_list import (
    SaleChangeList,
    SaleColumns,
    StateFilter,
    WhenFilter,
    copy,
    load_into_redis,
)
from vouchers.admin.series import FURTHER, copies_page, folded, series_page
from vouchers.catalogue.form_hints import Level
from vouchers.catalogue.listing import on_sale_now
from vouchers.catalogue.prices import ask_first
from vouchers.catalogue.sales import (
    create_sale,
    create_voucher_on_sale,
    delete_sale,
    edit_sale,
    has_buyers,
)
from vouchers.catalogue.series import copy_terms
from vouchers.catalogue.staff_texts import SALE_REFUSALS, refusal_text
from vouchers.forms.moments import SplitMomentField, SplitMomentInput
from vouchers.forms.sale import SaleForm
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.rebuild import load_unless_removed
from vouchers.inventory.sale_state import snapshot
from vouchers.models import RUN_PERMISSION, SaleStage, SeckillVoucher

_READ_AS = {
    "pay_within_s": "pay_within",
    "draw_wait_s": "draw_wait",
    "refund_unused": "refunds_unused",
}
"""The read-only fields of who may not change a sale, in the place of those that read badly."""

admin.site.site_header = admin.site.site_title = shop_name
admin.site.index_title = _("Sales and orders")


class SeckillVoucherAdmin(SaleColumns, RecordedAdmin):
    """Sales, created and edited through ``vouchers.catalogue.sales`` and never saved here."""

    form = SaleForm
    formfield_overrides = {
        models.DateTimeField: {"form_class": SplitMomentField, "widget": SplitMomentInput}
    }
    list_display = (
        "called", "state", "total", "sold_units", "left", "pending", "window", "limit",
    )  # fmt: skip
    list_filter = (StateFilter, WhenFilter, ("voucher__merchant", TypedFilter))
    list_select_related = ("voucher__merchant",)
    search_fields = ("=id", "^voucher__title", "^voucher__title_en")
    search_help_text = _("Sale id or beginning of the title")
    readonly_fields = ("state", "sold_units", "left", "pending", "picture_now")
    actions = (copy, load_into_redis)

    class Media:
        css = {"all": ("seckill/sale_form.css",)}

    def get_urls(self) -> list[URLPattern]:
        def url(route: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            return path(route, self.admin_site.admin_view(view), name=name)

        return [
            url("check/", self.check_view, "sale-check"),
            url("series/", partial(series_page, model_admin=self), "sale-series"),
            url("copies/", partial(copies_page, model_admin=self), "sale-copies"),
            url("<id:sale_id>/copy/", self.copy_view, "sale-copy"),
            *super().get_urls(),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[SeckillVoucher]:
        # The shop does not sell a rehearsal.
        sales = super().get_queryset(request).exclude(stage=SaleStage.REHEARSAL)
        return sales.select_related("voucher")  # its title is the name of a sale

    def get_fieldsets(self, request: HttpRequest, obj: SeckillVoucher | None = None) -> Any:
        """Show what most sales need and fold the rest; who only reads sees everything."""
        words: list[Any] = ["title", ("price", "face_value"), "valid_until", "picture"]
        described = ("title_en", "rules", "rules_en", "merchant", "valid_where")
        terms: list[Any] = ["stock", ("begins_at", "ends_at")]
        voucher = {"fields": words, "description": ""}
        further = [
            folded(_("More about the voucher"), *described),
            folded(_("Limit and pause"), "limit", "paused"),
            *FURTHER,
        ]
        parts = [(_("Voucher"), voucher), (_("Sale"), {"fields": terms})]
        if obj is None and _is_put_on_sale_again(request):
            voucher["fields"] = ["existing_voucher"]
            further[0] = folded(_("Another voucher"), *words, *described)
        elif obj is None:
            further.insert(0, folded(_("An existing voucher"), "existing_voucher"))
        elif self.has_change_permission(request, obj):
            there = obj.voucher.picture_id is not None
            words[-1:] = ["picture_now", "picture", "remove_picture"] if there else ["picture"]
            # A question before a change has the field itself.
            asks_why = obj.stage == SaleStage.PUBLIC and not hasattr(request, "asks")
            terms += ["why"] if asks_why else []
        else:
            words[-1] = "picture_now"
            further = [
                (title, {"fields": [_READ_AS.get(it, it) for it in part["fields"]]})
                for title, part in further
            ]
            if super().has_change_permission(request):
                voucher["description"] = gettext(
                    "This sale has started. Only staff who can run sales may change it now."
                )
        if obj is not None:
            now = {"fields": [("state", "sold_units", "left", "pending")]}
            parts.insert(0, (_("Now"), now))
        return [*parts, *further]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SaleChangeList

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # Sales are deleted one by one, so that a refusal can say why.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form of a new sale; a copy has a title of its own."""
        context = {"title": gettext("New sale"), **(extra_context or {})}
        answer: HttpResponse = super().add_view(request, form_url, context)
        return answer

    def view_on_site(self, obj: SeckillVoucher) -> str:
        page = "preview" if obj.stage == SaleStage.DRAFT else "purchase"
        return reverse(page, args=[obj.pk])

    def has_change_permission(
        self, request: HttpRequest, obj: SeckillVoucher | None = None
    ) -> bool:
        if not super().has_change_permission(request, obj):
            return False
        return obj is None or _may_edit(request, obj)

    def has_delete_permission(
        self, request: HttpRequest, obj: SeckillVoucher | None = None
    ) -> bool:
        if not super().has_delete_permission(request, obj):
            return False
        return obj is None or (_may_edit(request, obj) and not has_buyers(sale=obj))

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may act on live sales: reconcile and load them."""
        return request.user.has_perm(RUN_PERMISSION)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        match = request.resolver_match
        if match and match.url_name == "sale-copy":
            sale = self.get_queryset(request).get(pk=match.kwargs["sale_id"])
            zone = timezone.get_default_timezone()
            terms = copy_terms(sale=sale, now=database_now(), zone=zone)
            chosen = {"existing_voucher": sale.voucher_id, "group": terms.group_id}
            return {**asdict(terms), **chosen}
        given = super().get_changeform_initial_data(request)
        return {name: given[name] for name in given if name not in ("begins_at", "ends_at")}

    def prepare(self, object_id: str) -> None:
        """Load the sale: an edit needs the units taken."""
        if re.fullmatch("[0-9]{1,18}", object_id):
            load_unless_removed(sale_id=int(object_id))

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return super().changeform_view(request, object_id, *args, **kwargs)
        except SeckillVoucher.DoesNotExist:
            return self._report_deleted(request)

    def save_model(
        self, request: HttpRequest, obj: SeckillVoucher, form: SaleForm, change: bool
    ) -> None:
        hints = form.hints(now=database_now())
        details = form.details
        if change:
            sale = edit_sale(
                sale_id=obj.pk,
                terms=form.terms,
                details=details,
                may_run=self.has_run_permission(request),
                check=partial(self._check, request, form),
            )
        elif details is None:
            sale = create_sale(voucher=form.cleaned_data["existing_voucher"], terms=form.terms)
        else:
            sale = create_voucher_on_sale(details=details, terms=form.terms)
        obj.pk, obj.voucher, obj._state = sale.pk, sale.voucher, sale._state
        for hint in chain(*hints.values()):
            if hint.level is Level.WARNING and "_publish" not in request.POST:
                self.message_user(request, hint.once_saved or hint.text, messages.WARNING)
        transaction.on_commit(partial(self._report_loading, request, sale))

    def response_post_save_add(self, request: HttpRequest, obj: Any) -> HttpResponseRedirect:
        """Lead to the list, or from a draft to the page that asks whether to publish it."""
        if "_publish" in request.POST:
            return _to_publishing(obj.pk)
        return super().response_post_save_add(request, obj)

    response_post_save_change = response_post_save_add

    def response_again(self, request: HttpRequest, made: str) -> HttpResponse:
        """Ask the second press of *Publish*, too, whether to publish what the first made."""
        again = super().response_again(request, made)
        return _to_publishing(made) if "_publish" in request.POST else again

    def _check(self, request: HttpRequest, form: Any, locked: Any) -> None:
        """Check that the form may change the locked sale and its voucher; raises as both."""
        if locked.stage != form.terms.stage:  # no field of the form
            raise ChangedMeanwhile
        form.check(locked)
        details, now = form.details or locked.voucher, locked.locked_at
        # Others are refused while the voucher is on sale.
        if self.has_run_permission(request) or not on_sale_now(
            voucher_ids=[locked.voucher_id], now=now
        ):
            ask_first(
                voucher=locked.voucher,
                price_cents=details.price_cents,
                last_day=details.valid_until,
                confirmed=request.POST.get("confirmed", ""),
                why=form.cleaned_data["why"],
                now=now,
                sale=locked,
                limit=form.terms.limit,
                refund_unused=form.terms.refund_unused,
            )

    def check_view(self, request: HttpRequest) -> HttpResponse:
        """Validate the entries of a new sale, or of the one named by ``sale``; save nothing."""
        sale_id, sale = request.GET.get("sale"), None
        if sale_id and not (sale := self.get_object(request, sale_id)):
            raise Http404
        may_change = sale and self.has_change_permission(request, sale)
        if not (may_change if sale else self.has_add_permission(request)):
            raise PermissionDenied
        entries = request.POST if request.method == "POST" else request.GET
        form = self.get_form(request, sale, change=bool(sale))(entries, instance=sale)
        errors = {field: list(texts) for field, texts in form.errors.items()}
        hints = {
            name: [{"level": hint.level.value, "text": hint.text} for hint in field_hints]
            for name, field_hints in form.hints(now=database_now()).items()
        }
        return JsonResponse({"errors": errors, "hints": hints})

    @method_decorator(require_safe)
    def copy_view(self, request: HttpRequest, sale_id: int) -> HttpResponse:
        """Open the form of a new sale with the entries of this one; save nothing."""
        sale = self.get_object(request, str(sale_id))
        if sale is None:
            return self._report_deleted(request)
        if not self.has_view_permission(request, sale):
            raise PermissionDenied
        title = gettext("Copy of %(sale)s") % {"sale": sale}
        form_url = reverse("admin:vouchers_seckillvoucher_add")
        answer: HttpResponse = self.add_view(request, form_url, {"title": title})
        return answer

    def _report_loading(self, request: HttpRequest, sale: SeckillVoucher) -> None:
        if sale.ledger_removed_at:
            return  # it is long over
        try:
            live = snapshot(sale_id=sale.pk)
        except (NotLoaded, LedgerUnavailable):
            text = gettext(
                "The sale is saved but not ready yet. Its first buyer makes it ready, "
                "or it is within seconds of Redis coming back."
            )
            self.message_user(request, text, messages.WARNING)
            return
        if sale.stage != SaleStage.PUBLIC:
            return  # it sells nothing yet
        text = ngettext(
            "Ready to sell: %(count)s voucher", "Ready to sell: %(count)s vouchers", live.remaining
        )
        self.message_user(request, text % {"count": grouped(live.remaining)}, messages.SUCCESS)

    def delete_model(self, request: HttpRequest, obj: SeckillVoucher) -> None:
        delete_sale(sale_id=obj.pk)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        try:
            if request.method == "POST":
                self.prepare(object_id)
            return super().delete_view(request, object_id, extra_context)
        except SeckillVoucher.DoesNotExist:
            return self._report_deleted(request)
        except SALE_REFUSALS as error:
            self.message_user(request, refusal_text(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def _report_deleted(self, request: HttpRequest) -> HttpResponse:
        self.message_user(request, gettext("The sale has been deleted."), messages.ERROR)
        return HttpResponseRedirect(reverse("admin:vouchers_seckillvoucher_changelist"))


def _is_put_on_sale_again(request: HttpRequest) -> bool:
    """Return whether a new sale is of a voucher that there is: a copy, or by a link."""
    is_copy = request.resolver_match and request.resolver_match.url_name == "sale-copy"
    return bool(is_copy or (request.POST or request.GET).get("existing_voucher"))


def _to_publishing(pk: int | str) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{reverse('admin:sale-publish')}?ids={pk}")


def _may_edit(request: HttpRequest, sale: SeckillVoucher) -> bool:
    """Return whether this user may change a sale that may already have buyers."""
    if request.user.has_perm(RUN_PERMISSION):
        return True
    # Check the stored row: a form may have put other values into this instance.
    public = SeckillVoucher.objects.filter(pk=sale.pk, stage=SaleStage.PUBLIC)
    return not public.filter(begins_at__lte=database_now()).exists()
