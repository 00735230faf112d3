"""Payments in the admin, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.orders import order_link
from backoffice.admin.pages import ReadOnlyAdmin, timestamp_column
from orders.models import Payment
from seckill_site.formatting import NO_VALUE, money


class ProblemFilter(admin.SimpleListFilter):
    """Payments with or without a problem."""

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
class PaymentAdmin(ReadOnlyAdmin):
    """Payments as their providers have reported them."""

    list_display = ("reference", "its_order", "provider", "amount", "status", "wrong", "created")
    list_filter = ("status", ProblemFilter, "settles", "provider")
    search_fields = ("=reference", "=provider_reference", "=order__id")
    search_help_text = _("Reference, the provider's reference or order id")
    ordering = ("-pk",)
    fields = (
        "reference", "its_order", "provider", "provider_reference", "amount", "status", "settles",
        "wrong", "asks", "asked", "created", "changed",
    )  # fmt: skip
    readonly_fields = ("its_order", "amount", "wrong", "asks", "created", "changed")
    asks = timestamp_column("ask_at", _("next check at"))
    created = timestamp_column("created_at", _("created"))
    changed = timestamp_column("changed_at", _("changed"))

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
        return gettext(payment.problem) or NO_VALUE
