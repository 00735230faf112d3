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
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from seckill_site.clocks.database import database_now
from seckill_site.face.site_face import shop_name
from vouchers.admin.history import CodedHistory
from vouchers.admin.sale_list import (
    SaleChangeList,
    SaleColumns,
    StateFilter,
    WhenFilter,
    copy,
    load_into_redis,
    publish,
)
from vouchers.admin.series import copies_page, series_page
from vouchers.catalogue.audience import SALE_RULES
from vouchers.catalogue.form_hints import Level
from vouchers.catalogue.prices import once_at_rest
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
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.sale_state import snapshot
from vouchers.models import RUN_PERMISSION, SaleStage, SeckillVoucher

admin.site.site_header = admin.site.site_title = shop_name
admin.site.index_title = _("Sales and orders")


class SeckillVoucherAdmin(SaleColumns, CodedHistory):
    """Sales, created and edited through ``vouchers.catalogue.sales`` and never saved here."""

    form = SaleForm
    formfield_overrides = {
        models.DateTimeField: {"form_class": SplitMomentField, "widget": SplitMomentInput}
    }
    list_display = (
        "called", "state", "total", "sold_units", "left", "pending", "begins", "ends", "limit",
    )  # fmt: skip
    list_filter = (StateFilter, WhenFilter, "voucher__merchant")
    list_select_related = ("voucher__merchant",)
    search_fields = ("=id", "voucher__title", "voucher__title_en")
    readonly_fields = ("state", "sold_units", "left", "pending", "picture_now")
    actions = (publish, copy, load_into_redis)

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
        return super().get_queryset(request).exclude(stage=SaleStage.REHEARSAL)

    def get_fieldsets(self, request: HttpRequest, obj: SeckillVoucher | None = None) -> Any:
        voucher: list[Any] = [
            "title", "title_en", "rules", "rules_en", ("price", "face_value"),
            "merchant", ("valid_where", "valid_until"),
        ]  # fmt: skip
        limits, stage = ("limit", "per_address"), ("stage", "paused")
        sale: list[Any] = ["stock", ("begins_at", "ends_at"), limits, stage]
        may_type = obj is None or self.has_change_permission(request, obj)
        pay, wait = ("pay_within_s", "draw_wait_s") if may_type else ("pay_within", "draw_wait")
        after = (_("After the purchase"), {"fields": [pay, "extendable", "rebuy", "refundable"]})
        draw = (_("Draw"), {"fields": ["mode", wait]})
        room = (_("Waiting room"), {"fields": ["room", "room_rate", "room_shuffled"]})
        bots = (_("Against bots"), {"fields": ["work"]})
        audience = (
            _("Who may buy"),
            {
                "fields": [it.form_field for it in SALE_RULES],
                "description": _(
                    "Buyers have to meet all of these rules. A change applies within a "
                    "second, but not to buyers who are already allowed to buy."
                ),
            },
        )
        if obj is None:
            given = ["existing_voucher", *voucher, "picture"]
            first = [(_("Voucher"), {"fields": given}), (_("Sale"), {"fields": sale})]
            return [*first, audience, draw, after, room, bots]
        why_read_only = ""
        if self.has_change_permission(request, obj):
            there = obj.voucher.picture_id is not None
            voucher += ["picture_now", "picture", "remove_picture"] if there else ["picture"]
            sale.append("why")
        else:
            voucher.append("picture_now")
            if super().has_change_permission(request):
                why_read_only = gettext(
                    "This sale has started. Only staff who can run sales may change it now."
                )
        return [
            (_("Now"), {"fields": [("state", "sold_units", "left", "pending")]}),
            (_("Voucher"), {"fields": voucher, "description": why_read_only}),
            (_("Sale"), {"fields": sale}),
            draw,
            audience,
            after,
            room,
            bots,
        ]

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
        page = "purchase-form" if obj.stage == SaleStage.DRAFT else "purchase"
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

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.refusal = getattr(request, "refusal", "")
        return form

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

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        form_view = super().changeform_view

        def show() -> Any:
            for upload in chain(*(uploads for name, uploads in request.FILES.lists())):
                upload.seek(0)  # it may be shown again
            return form_view(request, object_id, form_url, extra_context)

        try:
            # Outside the admin's transaction: an edit needs the units taken.
            _load_before_post(request, object_id)
            return once_at_rest(show)
        except SeckillVoucher.DoesNotExist:
            return self._report_deleted(request)
        except SALE_REFUSALS as error:
            # Show the form again with the refusal, so that the entries are not lost.
            request.refusal = refusal_text(error)  # type: ignore[attr-defined]
            return show()

    def save_model(
        self, request: HttpRequest, obj: SeckillVoucher, form: SaleForm, change: bool
    ) -> None:
        hints = form.hints(now=database_now())
        details = form.details
        if change:
            may_run = self.has_run_permission(request)
            sale = edit_sale(sale_id=obj.pk, terms=form.terms, details=details, may_run=may_run)
        elif details is None:
            sale = create_sale(voucher=form.cleaned_data["existing_voucher"], terms=form.terms)
        else:
            sale = create_voucher_on_sale(details=details, terms=form.terms)
        obj.pk, obj.voucher, obj._state = sale.pk, sale.voucher, sale._state
        for hint in chain(*hints.values()):
            if hint.level is Level.WARNING:
                self.message_user(request, hint.once_saved or hint.text, messages.WARNING)
        transaction.on_commit(partial(self._report_loading, request, sale.pk))

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        if add:
            return super().construct_change_message(request, form, formsets, add)
        return form.history_entry()

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

    def _report_loading(self, request: HttpRequest, sale_id: int) -> None:
        try:
            live = snapshot(sale_id=sale_id)
        except (NotLoaded, LedgerUnavailable):
            text = gettext(
                "The sale is saved but not in Redis yet. Its first buyer will load it, "
                "or it loads within seconds of Redis coming back."
            )
            self.message_user(request, text, messages.WARNING)
            return
        text = gettext("Loaded into Redis: %(remaining)s of %(total)s vouchers are left.")
        figures = {"remaining": live.remaining, "total": live.terms.total}
        self.message_user(request, text % figures, messages.SUCCESS)

    def delete_model(self, request: HttpRequest, obj: SeckillVoucher) -> None:
        delete_sale(sale_id=obj.pk)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        try:
            _load_before_post(request, object_id)
            return super().delete_view(request, object_id, extra_context)
        except SeckillVoucher.DoesNotExist:
            return self._report_deleted(request)
        except SALE_REFUSALS as error:
            self.message_user(request, refusal_text(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def _report_deleted(self, request: HttpRequest) -> HttpResponse:
        self.message_user(request, gettext("The sale has been deleted."), messages.ERROR)
        return HttpResponseRedirect(reverse("admin:vouchers_seckillvoucher_changelist"))


def _may_edit(request: HttpRequest, sale: SeckillVoucher) -> bool:
    """Return whether this user may change a sale that may already have buyers."""
    if request.user.has_perm(RUN_PERMISSION):
        return True
    # Check the stored row: a form may have put other values into this instance.
    public = SeckillVoucher.objects.filter(pk=sale.pk, stage=SaleStage.PUBLIC)
    return not public.filter(begins_at__lte=database_now()).exists()


def _load_before_post(request: HttpRequest, object_id: str | None) -> None:
    if request.method == "POST" and object_id and re.fullmatch("[0-9]{1,18}", object_id):
        load_sale(sale_id=int(object_id))
