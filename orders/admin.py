"""Orders in the admin: searched, filtered and read, never typed."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from orders.models import VoucherOrder


@admin.register(VoucherOrder)
class VoucherOrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only: an order is made by a reservation and changed by its own life."""

    list_display = ("id", "user", "voucher", "unit", "status", "reason", "accepted_at")
    list_filter = ("status", "reason", ("seckill_voucher", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("user", "seckill_voucher__voucher")
    search_fields = ("=id", "user__username", "seckill_voucher__voucher__title")
    search_help_text = _("Order id, buyer or voucher")
    show_full_result_count = False

    @admin.display(description=_("seckill voucher"), ordering="seckill_voucher")
    def voucher(self, order: VoucherOrder) -> str:
        return str(order.seckill_voucher)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: VoucherOrder | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: VoucherOrder | None = None) -> bool:
        return False
