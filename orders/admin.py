"""Orders in the admin: searched, read and tried again, never typed. And each sale's sum of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import InterfaceError, OperationalError
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from orders.models import VoucherOrder
from orders.reconciling import Comparison, reconcile
from orders.retrying import Retry, is_set_aside, retry_orders, why_not
from vouchers.admin import SaleChangeList, SeckillVoucherAdmin
from vouchers.ledger import LedgerUnavailable
from vouchers.listing import SaleCard, cards
from vouchers.models import SeckillVoucher

UNKNOWN = (LedgerUnavailable, OperationalError, InterfaceError)
"""Nobody knows whether it was done; to do it again is safe."""

NO_ANSWER = _("Redis or the database did not answer. Try again.")


@admin.register(VoucherOrder)
class VoucherOrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only: an order is made by a reservation and changed by its own life."""

    list_display = ("id", "user", "voucher", "unit", "status", "reason", "accepted_at")
    list_filter = ("status", "reason", ("seckill_voucher", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("user", "seckill_voucher__voucher")
    search_fields = ("=id", "user__username", "seckill_voucher__voucher__title")
    search_help_text = _("Order id, buyer or voucher")
    show_full_result_count = False
    actions = ("try_again",)

    @admin.display(description=_("seckill voucher"), ordering="seckill_voucher")
    def voucher(self, order: VoucherOrder) -> str:
        return str(order.seckill_voucher)

    def get_fieldsets(self, request: HttpRequest, obj: VoucherOrder | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None and is_set_aside(obj):
            fieldsets[0][1]["description"] = _(
                "This order could not be written and was set aside. It was never payable, so there "
                "is nothing to refund, and its unit went back on sale at once. In the list of "
                "orders it can be tried again."
            )
        return fieldsets

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: VoucherOrder | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: VoucherOrder | None = None) -> bool:
        return False

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whoever was given the permission to change orders may try them again."""
        return request.user.has_perm("orders.change_voucherorder")

    @admin.action(description=_("Try again (orders set aside)"), permissions=["retry"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[VoucherOrder]) -> None:
        orders = {order.pk: order for order in queryset.order_by("pk")}
        try:
            for retry in retry_orders(order_ids=orders):
                self._report(request, orders[retry.order_id], retry)
        except UNKNOWN:
            self.message_user(request, NO_ANSWER, messages.ERROR)

    def _report(self, request: HttpRequest, order: VoucherOrder, retry: Retry) -> None:
        if retry.refusal is None:
            text = gettext("Order %(order_id)s is live now, to be paid by its buyer.")
            self.message_user(request, text % {"order_id": order.pk}, messages.SUCCESS)
            self.log_change(request, order, gettext("Tried again."))
            return
        text = gettext("Order %(order_id)s was not tried again: %(reason)s.")
        values = {"order_id": order.pk, "reason": why_not(retry.refusal)}
        self.message_user(request, text % values, messages.WARNING)


# --- Sales ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SaleSum:
    """What the units of a sale should add up to: left and pending in Redis, live in the database.

    Redis is read first. An order that is committed and confirmed in between is counted twice, as
    pending and as live: so many units too many are *in flight* and no difference.
    """

    total: int
    left: int
    pending: int
    live: int

    @property
    def difference(self) -> int:
        """Units that are nowhere; below none, units that are in two places."""
        return self.total - self.left - self.pending - self.live

    @property
    def in_flight(self) -> bool:
        """Whether pending entries that became orders meanwhile can be all that is too many."""
        return -self.pending <= self.difference < 0


class SaleSumList(SaleChangeList):
    """The list of sales with the sum of each: after the round trip to Redis, one statement more."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        _add_up(self.result_list)


admin.site.unregister(SeckillVoucher)


@admin.register(SeckillVoucher)
class SaleAdmin(SeckillVoucherAdmin):
    """The shop's page of sales, with what only orders can tell: does each add up, and repair it."""

    list_display: Any = (*SeckillVoucherAdmin.list_display, "sum")
    readonly_fields: ClassVar[Any] = (*SeckillVoucherAdmin.readonly_fields, "sum")
    actions: Any = (*SeckillVoucherAdmin.actions, "reconcile")

    def get_fieldsets(self, request: HttpRequest, obj: SeckillVoucher | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None:
            now = fieldsets[0][1]
            now["fields"] = (*now["fields"], "sum")
            now["description"] = _("The sum is: total = left + pending + orders.")
        return fieldsets

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SaleSumList

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> SeckillVoucher | None:
        sale: SeckillVoucher | None = super().get_object(request, *args, **kwargs)
        if sale is not None and request.method == "GET":
            # Once for all fields of the page, so that they belong to one moment.
            sale.card = cards(sales=[sale], now=timezone.now())[0]  # type: ignore[attr-defined]
            _add_up([sale])
        return sale

    @admin.display(description=_("sum"))
    def sum(self, sale: SeckillVoucher) -> str:
        found: SaleSum | None = getattr(sale, "sum", None)
        if found is None:
            return f"– ({gettext('not loaded')})"
        return _as_text(found)

    @admin.action(description=_("Reconcile"), permissions=["change"])
    def reconcile(self, request: HttpRequest, queryset: QuerySet[SeckillVoucher]) -> None:
        for sale in queryset:
            try:
                before, after = _reconciled(sale_id=sale.pk)
            except SeckillVoucher.DoesNotExist:
                continue  # deleted meanwhile
            except UNKNOWN:
                self.message_user(request, NO_ANSWER, messages.ERROR)
                return
            level, text = _outcome(before, after)
            values = {"sale": sale, "before": before.difference, "after": after.difference}
            self.message_user(request, text % values, level)


def _add_up(sales: Iterable[SeckillVoucher]) -> None:
    """Give each of these sales, whose cards are known, its sum where it is loaded."""
    sales = list(sales)
    live = Count("orders", filter=Q(orders__live=True))
    counted = SeckillVoucher.objects.filter(pk__in=[sale.pk for sale in sales])
    rows = counted.annotate(live_orders=live).values_list("pk", "stock", "live_orders")
    found = {pk: (stock, live_orders) for pk, stock, live_orders in rows}
    for sale in sales:
        card: SaleCard = sale.card  # type: ignore[attr-defined]
        if card.remaining is None or card.pending is None or sale.pk not in found:
            continue
        stock, live_orders = found[sale.pk]
        sale.sum = SaleSum(stock, card.remaining, card.pending, live_orders)  # type: ignore[attr-defined]


def _as_text(found: SaleSum) -> str:
    """Return the sum with its verdict, which words or a shape tell, not colour alone."""
    terms = f"{found.left} + {found.pending} + {found.live}"
    if found.difference == 0:
        tick, fits = static("admin/img/icon-yes.svg"), gettext("adds up")
        return format_html('{} = {} <img src="{}" alt="{}">', found.total, terms, tick, fits)
    if found.in_flight:
        flying = gettext("%(count)s in flight") % {"count": -found.difference}
        return f"{found.total} = {terms} − {flying}"
    cross, off = static("admin/img/icon-no.svg"), f"{found.difference:+d}".replace("-", "−")
    text = gettext("difference %(count)s") % {"count": off}
    return format_html(
        '{} ≠ {} <img src="{}" alt=""> <strong>{}</strong>', found.total, terms, cross, text
    )


def _reconciled(*, sale_id: int) -> tuple[Comparison, Comparison]:
    """Compare a sale, repair it unless all is well, and return it before and after."""
    before = reconcile(sale_id=sale_id)
    if before.remaining is not None and before.difference == 0:
        return before, before
    return before, reconcile(sale_id=sale_id, repair=True)


def _outcome(before: Comparison, after: Comparison) -> tuple[int, str]:
    """Return how a reconciling is reported, and in which words."""
    if after.difference:
        return messages.ERROR, gettext("%(sale)s: still different by %(after)s.")
    if before.difference:
        return messages.WARNING, gettext("%(sale)s: was different by %(before)s, is repaired.")
    if before.remaining is None:
        return messages.SUCCESS, gettext("%(sale)s: was not loaded, is loaded now and fits.")
    return messages.SUCCESS, gettext("%(sale)s: fits.")
