"""Read-only pages of the admin: payments, their differences, bulk jobs, and held locks."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NoReturn

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from redis import RedisError

from backoffice.admin.pages import ReadOnlyAdmin, office, order_link, pill_column, timestamp_column
from backoffice.bulk_jobs import refusal_text
from locks.django.models import Lock
from locks.inspection import held_locks
from orders.models import JobStatus, OrderJob, Payment, PaymentStatus, SettlementDifference
from seckill_site.formatting import NO_VALUE, money, money_in
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.web.admin_lists import ConditionFilter, column

REFUSALS_PER_PAGE = 100

PAYMENT_TONES: dict[str, str] = {
    PaymentStatus.PAID: "good",
    PaymentStatus.REFUNDING: "warn",
    PaymentStatus.REFUNDED: "",
    PaymentStatus.OPEN: "warn",
    PaymentStatus.REFUSED: "bad",
    PaymentStatus.PARTLY_REFUNDED: "warn",
    PaymentStatus.DISPUTED: "bad",
    PaymentStatus.REFUND_FAILED: "bad",
}


class ProblemFilter(ConditionFilter):
    """Payments with or without a problem."""

    title = _("problem")
    parameter_name = "problem"
    labels = {"yes": _("with a problem"), "no": _("without a problem")}

    def conditions(self, now: dt.datetime) -> dict[str, Q]:
        return {"yes": ~Q(problem=""), "no": Q(problem="")}


@admin.register(Payment)
class PaymentAdmin(ReadOnlyAdmin):
    """Payments as reported by their providers."""

    list_display = ("reference", "its_order", "provider", "amount", "state", "wrong", "created")
    list_filter = ("status", ProblemFilter, "settles", "provider")
    search_fields = ("reference", "charge__reference", "provider_reference", "order")
    search_help_text = _("Reference, the provider's reference or order id")
    ordering = ("-pk",)
    fields = (
        "reference", "its_order", "together", "provider", "provider_reference", "amount",
        "received", "refunded", "state", "settles", "wrong", "asks", "asked", "created", "changed",
    )  # fmt: skip
    its_order = column(_("order"), lambda it: order_link(it.order_id), ordering="order")
    together = column(_("paid together"), lambda it: _orders_of_charge(it))
    amount = column(_("amount"), lambda it: _share(it), ordering="amount_cents")
    state = pill_column("status", _("status"), PAYMENT_TONES)
    received = column(
        _("paid instead"), lambda it: money_in(it.received_cents, it.received_currency)
    )
    refunded = column(
        _("gone back"), lambda it: money_in(it.refunded_cents or None, it.received_currency)
    )
    wrong = column(_("problem"), lambda it: gettext(it.problem) or NO_VALUE, ordering="problem")
    asks = timestamp_column("ask_at", _("next check at"))
    created = timestamp_column("created_at", _("created"))
    changed = timestamp_column("changed_at", _("changed"))


def _share(payment: Payment) -> str:
    """Return the amount of a payment, and of its charge if that pays further orders."""
    share = money(payment.amount_cents)
    if payment.total_cents is None:
        return share
    return gettext("%(share)s of %(total)s") % {"share": share, "total": money(payment.total_cents)}


def _orders_of_charge(payment: Payment) -> str:
    if payment.total_cents is None:
        return NO_VALUE
    links = ((order_link(it.order_id),) for it in payment.list_shares())
    return format_html_join(", ", "{}", links)


class OpenFilter(ConditionFilter):
    """Differences that are open, which is what the page starts with, or resolved."""

    title = _("state")
    parameter_name = "open"
    labels = {"no": _("resolved"), "all": _("All")}

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Name the default, which is not everything."""
        everything, *others = super().choices(changelist)
        yield {**everything, "display": pgettext_lazy("a payment difference", "open")}
        yield from others

    def conditions(self, now: dt.datetime) -> dict[str, Q]:
        return {"no": Q(resolved_at__isnull=False), "all": Q()}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        shown = super().queryset(request, queryset)
        return shown if self.value() in self.labels else shown.filter(resolved_at=None)


@admin.register(SettlementDifference)
class SettlementDifferenceAdmin(ReadOnlyAdmin):
    """What a provider's list and our payments do not agree about."""

    list_display = (
        "day", "provider", "direction", "kind", "reference", "ours", "theirs", "its_order", "found",
    )  # fmt: skip
    list_filter = (OpenFilter, "provider", "kind", "direction")
    list_select_related = ("payment",)
    search_fields = ("reference",)
    search_help_text = _("Reference")
    fields = (*list_display, "resolved")
    ours = column(
        _("our amount"),
        lambda it: money_in(it.our_cents, it.payment.received_currency if it.payment else ""),
        ordering="our_cents",
    )
    theirs = column(
        _("the provider's amount"),
        lambda it: money_in(it.their_cents, it.their_currency),
        ordering="their_cents",
    )
    its_order = column(
        _("order"), lambda it: order_link(it.payment.order_id) if it.payment else NO_VALUE
    )
    found = timestamp_column("found_at", _("found at"))
    resolved = timestamp_column("resolved_at", _("resolved at"))


@admin.register(OrderJob)
class OrderJobAdmin(ReadOnlyAdmin):
    """The progress of each job, and the orders it did not change."""

    list_display = ("__str__", "progress", "state", "by", "why", "created", "changed")
    list_filter = ("status", "kind")
    list_select_related = ("actor",)
    fields = ("kind", "why", "by", "progress", "state", "created", "changed")
    state = pill_column("status", _("status"), {JobStatus.RUNNING: "warn", JobStatus.DONE: "good"})
    created = timestamp_column("created_at", _("created"))
    changed = timestamp_column("changed_at", _("changed"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[OrderJob]:
        # These columns hold thousands of ids, and no list shows them.
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
        sums = Counter(job.sums or job.refusals.values()).most_common()
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


@admin.register(Lock)
class LockAdmin(ReadOnlyAdmin):
    """A list without a database table: it shows the current locks in Redis."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        title = capfirst(self.opts.verbose_name_plural)
        context: dict[str, Any] = {"title": title, "opts": self.opts}
        try:
            context["holds"] = held_locks(ledger_connection())
        except RedisError:
            context["status"] = HTTPStatus.SERVICE_UNAVAILABLE
        return office.show(request, "locks/lock/change_list.html", **context)

    def get_object(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise PermissionDenied  # a lock has no page of its own
