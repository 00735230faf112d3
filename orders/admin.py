"""In the admin: each sale's sum of its orders, and to look at, payments and jobs.

The orders themselves are in ``orders/order_admin.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from orders.board import SaleSum
from orders.board_admin import board_urls
from orders.jobs import why_not
from orders.models import JobStatus, OrderJob, Payment
from orders.order_admin import NO_ANSWER, UNKNOWN, to_the_second
from orders.reconciling import Comparison, reconcile
from orders.rehearsal_admin import rehearsal_urls
from orders.report_admin import report_urls
from vouchers.admin import SeckillVoucherAdmin
from vouchers.listing import SaleCard, cards
from vouchers.models import SaleState, SeckillVoucher
from vouchers.sale_admin_list import SaleChangeList, card_of
from vouchers.templatetags.seckill import yuan

NOT_CHANGED_A_PAGE = 100
"""How many of the orders that a job did not change stand on one page of it."""

# --- Sales ---------------------------------------------------------------------------------------


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

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        title, state, *others = self.list_display
        return (title, state, "board", *others)  # where nobody has to scroll for it

    def get_urls(self) -> list[URLPattern]:
        sale_urls = [
            *board_urls(self),
            *report_urls(self),
            *rehearsal_urls(self),
        ]
        return [*sale_urls, *super().get_urls()]

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

    @admin.display(description=_("board"), empty_value="")
    def board(self, sale: SeckillVoucher) -> str | None:
        """Lead to the board of a sale that is not over."""
        if card_of(sale).state is SaleState.ENDED:
            return None
        url = reverse("admin:sale-board", args=[sale.pk])
        return format_html('<a href="{}">{}</a>', url, gettext("Board"))

    @admin.action(description=_("Reconcile"), permissions=["run"])
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


# --- Payments ------------------------------------------------------------------------------------


class ProblemFilter(admin.SimpleListFilter):
    """Payments with which something is wrong."""

    title = _("problem")
    parameter_name = "problem"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("has a problem")), ("no", _("has none"))]

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
        return _order_link(payment.order_id)

    @admin.display(description=_("amount"), ordering="amount_cents")
    def amount(self, payment: Payment) -> str:
        return yuan(payment.amount_cents)

    @admin.display(description=_("problem"), ordering="problem")
    def wrong(self, payment: Payment) -> str:
        return gettext(payment.problem) or "–"

    @admin.display(description=_("ask at"))
    def asks(self, payment: Payment) -> str:
        return to_the_second(payment.ask_at) if payment.ask_at else "–"

    @admin.display(description=_("created"), ordering="created_at")
    def created(self, payment: Payment) -> str:
        return to_the_second(payment.created_at)

    @admin.display(description=_("changed"), ordering="changed_at")
    def changed(self, payment: Payment) -> str:
        return to_the_second(payment.changed_at)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False


def _order_link(order_id: int) -> str:
    url = reverse("admin:orders_voucherorder_change", args=[order_id])
    return format_html('<a href="{}">{}</a>', url, order_id)


# --- Jobs ----------------------------------------------------------------------------------------


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
        return to_the_second(job.created_at)

    @admin.display(description=_("changed"), ordering="changed_at")
    def changed(self, job: OrderJob) -> str:
        return to_the_second(job.changed_at)

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
            "not_changed": [(_order_link(int(order_id)), why_not(it)) for order_id, it in page],
            "sums": [(why_not(it), count) for it, count in sums],
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
