"""Bulk jobs in the admin: how far each is, and which orders it did not change."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.orders import order_link
from backoffice.bulk_jobs import refusal_text
from orders.models import JobStatus, OrderJob
from seckill_site.formatting import timestamp

NOT_CHANGED_A_PAGE = 100
"""How many of the orders that a job did not change stand on one page of it."""


@admin.register(OrderJob)
class OrderJobAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only: how far a job is, and which orders it did not change."""

    list_display = ("__str__", "progress", "status", "actor", "why", "began", "changed")
    list_filter = ("status", "kind")
    list_select_related = ("actor",)
    show_full_result_count = False
    fields = ("kind", "why", "actor", "progress", "status", "began", "changed")
    readonly_fields = ("progress", "began", "changed")

    class Media:
        css = {"all": ["seckill/order_admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[OrderJob]:
        # Thousands of ids each, and no list shows them.
        return super().get_queryset(request).defer("order_ids", "refusals")

    @admin.display(description=_("progress"))
    def progress(self, job: OrderJob) -> str:
        text = gettext("%(done)s of %(total)s") % {"done": job.done, "total": job.total}
        return format_html(
            '<progress max="{}" value="{}" aria-hidden="true"></progress> {}',
            max(job.total, 1), job.done if job.total else 1, text,
        )  # fmt: skip

    @admin.display(description=_("created"), ordering="created_at")
    def began(self, job: OrderJob) -> str:
        return timestamp(job.created_at)

    @admin.display(description=_("changed"), ordering="changed_at")
    def changed(self, job: OrderJob) -> str:
        return timestamp(job.changed_at)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the orders that were not changed, and go on asking while the job runs."""
        job: OrderJob = context["original"]
        refusals = sorted(job.refusals.items(), key=lambda item: int(item[0]))
        page = Paginator(refusals, NOT_CHANGED_A_PAGE).get_page(request.GET.get("page"))
        sums = Counter(job.refusals.values()).most_common()
        context |= {
            "runs": job.status == JobStatus.RUNNING,
            "page_obj": page,
            "not_changed": [(order_link(int(order_id)), refusal_text(it)) for order_id, it in page],
            "sums": [(refusal_text(it), count) for it, count in sums],
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: OrderJob | None = None) -> bool:
        """Who may begin a job may see what becomes of it."""
        may_end = request.user.has_perm("orders.end_voucherorder")
        return may_end or super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: OrderJob | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: OrderJob | None = None) -> bool:
        return False
