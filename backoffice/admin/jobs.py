"""Bulk jobs in the admin: the progress of each, and the orders it did not change."""

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
from backoffice.admin.pages import ReadOnlyAdmin, timestamp_column
from backoffice.bulk_jobs import refusal_text
from orders.models import JobStatus, OrderJob

REFUSALS_PER_PAGE = 100


@admin.register(OrderJob)
class OrderJobAdmin(ReadOnlyAdmin):
    """The progress of each job, and the orders it did not change."""

    list_display = ("__str__", "progress", "status", "actor", "why", "created", "changed")
    list_filter = ("status", "kind")
    list_select_related = ("actor",)
    fields = ("kind", "why", "actor", "progress", "status", "created", "changed")
    readonly_fields = ("progress", "created", "changed")
    created = timestamp_column("created_at", _("created"))
    changed = timestamp_column("changed_at", _("changed"))

    class Media:
        css = {"all": ["seckill/order_admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[OrderJob]:
        # They hold thousands of ids, and no list shows them.
        return super().get_queryset(request).defer("order_ids", "refusals")

    @admin.display(description=_("progress"))
    def progress(self, job: OrderJob) -> str:
        text = gettext("%(done)s of %(total)s") % {"done": job.done, "total": job.total}
        return format_html(
            '<progress max="{}" value="{}" aria-hidden="true"></progress> {}',
            max(job.total, 1), job.done if job.total else 1, text,
        )  # fmt: skip

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the orders that were not changed; reload while the job runs."""
        job: OrderJob = context["original"]
        refusals = sorted(job.refusals.items(), key=lambda item: int(item[0]))
        page = Paginator(refusals, REFUSALS_PER_PAGE).get_page(request.GET.get("page"))
        sums = Counter(job.refusals.values()).most_common()
        context |= {
            "runs": job.status == JobStatus.RUNNING,
            "page_obj": page,
            "not_changed": [(order_link(int(order_id)), refusal_text(it)) for order_id, it in page],
            "sums": [(refusal_text(it), count) for it, count in sums],
        }
        return super().render_change_form(request, context, *args, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: OrderJob | None = None) -> bool:
        """Show the outcome to everyone who may start a job."""
        may_end = request.user.has_perm("orders.end_voucherorder")
        return may_end or super().has_view_permission(request, obj)
