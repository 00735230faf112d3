"""The shop's side: make sales, edit them while they run, see what is left."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from vouchers.figures import BelowTaken, snapshot
from vouchers.forms import SaleForm
from vouchers.ledger import LedgerUnavailable, NotLoaded
from vouchers.listing import SaleCard, cards
from vouchers.loading import load_sale
from vouchers.models import SeckillVoucher, Voucher
from vouchers.sales import (
    LimitLowered,
    SaleHasBuyers,
    create_sale,
    create_voucher_on_sale,
    delete_sale,
    edit_sale,
    has_buyers,
)
from vouchers.templatetags.seckill import yuan

REFUSALS = (BelowTaken, LimitLowered, SaleHasBuyers, LedgerUnavailable)

admin.site.site_header = _("Seckill")
admin.site.site_title = _("Seckill")
admin.site.index_title = _("Sales and orders")


class SaleChangeList(ChangeList):
    """The list of sales, each with its live figures, in one round trip to Redis a page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        for card in cards(sales=self.result_list, now=timezone.now()):
            card.sale.card = card  # type: ignore[attr-defined]


class WhenFilter(admin.SimpleListFilter):
    """Sales by where they are in time."""

    title = _("time")
    parameter_name = "when"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [("coming", _("coming")), ("running", _("running")), ("over", _("over"))]

    def queryset(
        self, request: Any, queryset: QuerySet[SeckillVoucher]
    ) -> QuerySet[SeckillVoucher]:
        now = timezone.now()
        if self.value() == "coming":
            return queryset.filter(begins_at__gt=now)
        if self.value() == "running":
            return queryset.filter(begins_at__lte=now, ends_at__gt=now)
        if self.value() == "over":
            return queryset.filter(ends_at__lte=now)
        return queryset


@admin.register(SeckillVoucher)
class SeckillVoucherAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Makes and edits sales through ``vouchers.sales``; never saves a row by itself."""

    form = SaleForm
    list_display = (
        "title", "state", "total", "sold_units", "left", "pending", "begins", "ends", "limit",
    )  # fmt: skip
    list_filter = (WhenFilter, "paused")
    list_select_related = ("voucher",)
    search_fields = ("=id", "voucher__title")
    readonly_fields = ("sold_units", "left", "pending")
    actions = ("load_into_redis",)

    def get_fieldsets(self, request: HttpRequest, obj: SeckillVoucher | None = None) -> Any:
        voucher = ("title", "rules", ("price", "face_value"))
        sale = ("stock", ("begins_at", "ends_at"), "limit", ("stage", "paused"))
        after = ("pay_within_s", "rebuy", "refundable")
        if obj is None:
            return [
                (_("Voucher"), {"fields": ("existing_voucher", *voucher)}),
                (_("Sale"), {"fields": sale}),
                (_("After the win"), {"fields": after}),
            ]
        return [
            (_("Now"), {"fields": (("sold_units", "left", "pending"),)}),
            (_("Voucher"), {"fields": voucher}),
            (_("Sale"), {"fields": sale}),
            (_("After the win"), {"fields": after}),
        ]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SaleChangeList

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # Sales are deleted one by one, where it can be said why one cannot be.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def view_on_site(self, obj: SeckillVoucher) -> str:
        return reverse("purchase", args=[obj.pk])

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        def change() -> HttpResponse:
            # Outside the admin's transaction: what is taken must be known before an edit.
            _load_before_post(request, object_id)
            return super(SeckillVoucherAdmin, self).changeform_view(
                request, object_id, form_url, extra_context
            )

        return self._explained(request, change)

    def save_model(
        self, request: HttpRequest, obj: SeckillVoucher, form: SaleForm, change: bool
    ) -> None:
        sale = _save(obj, form, change=change)
        obj.pk, obj.voucher, obj._state = sale.pk, sale.voucher, sale._state
        transaction.on_commit(partial(self._say_whether_loaded, request, sale.pk))

    def _say_whether_loaded(self, request: HttpRequest, sale_id: int) -> None:
        try:
            found = snapshot(sale_id=sale_id)
        except (NotLoaded, LedgerUnavailable):
            text = gettext(
                "The sale is saved but not in Redis yet; it will be loaded by its first buyer "
                "or within seconds of Redis being back."
            )
            self.message_user(request, text, messages.WARNING)
            return
        text = gettext("Loaded into Redis: %(remaining)s of %(total)s units are left.")
        figures = {"remaining": found.remaining, "total": found.figures.total}
        self.message_user(request, text % figures, messages.SUCCESS)

    def has_delete_permission(
        self, request: HttpRequest, obj: SeckillVoucher | None = None
    ) -> bool:
        if not super().has_delete_permission(request, obj):
            return False
        return obj is None or not has_buyers(sale=obj)

    def delete_model(self, request: HttpRequest, obj: SeckillVoucher) -> None:
        delete_sale(sale_id=obj.pk)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        def delete() -> HttpResponse:
            _load_before_post(request, object_id)
            return super(SeckillVoucherAdmin, self).delete_view(request, object_id, extra_context)

        return self._explained(request, delete)

    def _explained(self, request: HttpRequest, act: Callable[[], HttpResponse]) -> HttpResponse:
        """Do it, or say why not: a buyer or a colleague was faster than the form's own checks."""
        try:
            return act()
        except SeckillVoucher.DoesNotExist:
            self.message_user(request, gettext("The sale has been deleted."), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:vouchers_seckillvoucher_changelist"))
        except REFUSALS as error:
            self.message_user(request, _why_not(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    @admin.action(description=_("Load into Redis"), permissions=["change"])
    def load_into_redis(self, request: HttpRequest, queryset: QuerySet[SeckillVoucher]) -> None:
        try:
            for sale in queryset:
                load_sale(sale_id=sale.pk)
        except LedgerUnavailable:
            text = gettext("Redis did not answer. Try again.")
            self.message_user(request, text, messages.ERROR)
            return
        self.message_user(request, gettext("Loaded."), messages.SUCCESS)

    @admin.display(description=_("voucher"), ordering="voucher__title")
    def title(self, sale: SeckillVoucher) -> str:
        return sale.voucher.title

    @admin.display(description=_("state"))
    def state(self, sale: SeckillVoucher) -> str:
        card = _card(sale)
        label = str(card.state.label)
        return label if card.remaining is not None else f"{label} ({gettext('not loaded')})"

    @admin.display(description=_("total"), ordering="stock")
    def total(self, sale: SeckillVoucher) -> int:
        return sale.stock

    @admin.display(description=_("sold"), ordering="sold")
    def sold_units(self, sale: SeckillVoucher) -> int:
        return sale.sold

    @admin.display(description=_("left"), empty_value="–")
    def left(self, sale: SeckillVoucher) -> int | None:
        return _card(sale).remaining

    @admin.display(description=_("begins"), ordering="begins_at")
    def begins(self, sale: SeckillVoucher) -> str:
        return _short(sale.begins_at)

    @admin.display(description=_("ends"), ordering="ends_at")
    def ends(self, sale: SeckillVoucher) -> str:
        return _short(sale.ends_at)

    # What the form calls its own fields, for staff who may only look.

    @admin.display(description=_("Rules"))
    def rules(self, sale: SeckillVoucher) -> str:
        return sale.voucher.rules

    @admin.display(description=_("Price"))
    def price(self, sale: SeckillVoucher) -> str:
        return yuan(sale.voucher.price_cents)

    @admin.display(description=_("Face value"))
    def face_value(self, sale: SeckillVoucher) -> str:
        return yuan(sale.voucher.face_value_cents)

    @admin.display(description=_("pending"), empty_value="–")
    def pending(self, sale: SeckillVoucher) -> int | None:
        return _card(sale).pending


def _short(moment: dt.datetime) -> str:
    """Return a moment in the shop's time zone, to the second and narrow enough for a column."""
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S}"


def _load_before_post(request: HttpRequest, object_id: str | None) -> None:
    if request.method == "POST" and object_id and re.fullmatch("[0-9]{1,18}", object_id):
        load_sale(sale_id=int(object_id))


def _why_not(error: Exception) -> str:
    if isinstance(error, BelowTaken):
        text = gettext("Nothing was changed: %(taken)s units are taken by now.")
        return text % {"taken": error.taken}
    if isinstance(error, LimitLowered):
        return gettext("Nothing was changed: the limit was raised meanwhile.")
    if isinstance(error, SaleHasBuyers):
        return gettext("The sale has buyers and cannot be deleted. Pause it instead.")
    return gettext("Nothing was changed: Redis did not answer. Try again.")


def _card(sale: SeckillVoucher) -> SaleCard:
    """Return the live figures that the list has fetched, or fetch them for a single sale."""
    found: SaleCard = getattr(sale, "card", None) or cards(sales=[sale], now=timezone.now())[0]
    return found


def _save(obj: SeckillVoucher, form: SaleForm, *, change: bool) -> SeckillVoucher:
    details = form.details
    if change:
        return edit_sale(sale_id=obj.pk, terms=form.terms, details=details)
    if details is None:
        return create_sale(voucher=form.cleaned_data["existing_voucher"], terms=form.terms)
    return create_voucher_on_sale(details=details, terms=form.terms)


@admin.register(Voucher)
class VoucherAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Vouchers by themselves: what they are, whatever sale they are in."""

    list_display = ("title", "price", "face_value", "new_sale")
    search_fields = ("title",)

    @admin.display(description=_("Price"), ordering="price_cents")
    def price(self, voucher: Voucher) -> str:
        return yuan(voucher.price_cents)

    @admin.display(description=_("Face value"), ordering="face_value_cents")
    def face_value(self, voucher: Voucher) -> str:
        return yuan(voucher.face_value_cents)

    @admin.display(description=_("sale"))
    def new_sale(self, voucher: Voucher) -> str:
        url = reverse("admin:vouchers_seckillvoucher_add")
        return format_html(
            '<a href="{}?existing_voucher={}">{}</a>', url, voucher.pk, gettext("Put on sale")
        )
