"""Payments in the admin, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.orders import order_link
from orders.models import Payment
from seckill_site.formatting import money, timestamp


class ProblemFilter(admin.SimpleListFilter):
    """Payments with which something is wrong."""

    title = _("problem")
    parameter_name = "problem"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("with a problem")), ("no", _("without a problem"))]

    def queryset(self, request: Any, queryset: QuerySet[Payment]) -> QuerySet[Payment]:
        if self.value() == "yes":
            return queryset.exclude(problem="")
        if self.value() == "no":
            return queryset.filter(problem="")
        return queryset


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only: what a payment is, its provider says."""

    list_display = ("reference", "its_order", "provider", "amount", "status", "wrong", "created")
    list_filter = ("status", ProblemFilter, "settles", "provider")
    search_fields = ("=reference", "=provider_reference", "=order__id")
    search_help_text = _("Reference, the provider's reference or order id")
    ordering = ("-pk",)
    show_full_result_count = False
    fields = (
        "reference", "its_order", "provider", "provider_reference", "amount", "status", "settles",
        "wrong", "asks", "asked", "created", "changed",
    )  # fmt: skip
    readonly_fields = ("its_order", "amount", "wrong", "asks", "created", "changed")

    class Media:
        css = {"all": ["seckill/order_admin.css"]}

    @admin.display(description=_("order"), ordering="order")
    def its_order(self, payment: Payment) -> str:
        return order_link(payment.order_id)

    @admin.display(description=_("amount"), ordering="amount_cents")
    def amount(self, payment: Payment) -> str:
        return money(payment.amount_cents)

    @admin.display(description=_("problem"), ordering="problem")
    def wrong(self, payment: Payment) -> str:
        return gettext(payment.problem) or "–"

    @admin.display(description=_("next check at"))
    def asks(self, payment: Payment) -> str:
        return timestamp(payment.ask_at) if payment.ask_at else "–"

    @admin.display(description=_("created"), ordering="created_at")
    def created(self, payment: Payment) -> str:
        return timestamp(payment.created_at)

    @admin.display(description=_("changed"), ordering="changed_at")
    def changed(self, payment: Payment) -> str:
        return timestamp(payment.changed_at)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False
