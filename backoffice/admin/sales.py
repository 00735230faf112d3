"""Sales in the admin: balances, reconciliation, and the URLs of a sale's other pages."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.board import board_urls
from backoffice.admin.codes import codes_file, codes_page
from backoffice.admin.customers import waiting_page
from backoffice.admin.pages import sale_url
from backoffice.admin.rehearsals import rehearse_sale
from backoffice.admin.report import report_file, report_page, room_file
from backoffice.board.snapshot import SaleSum
from backoffice.board.texts import sum_verdict
from backoffice.job_engine import UNAVAILABLE
from orders.fulfilment.reconcile import Comparison, reconcile
from seckill_site.clocks.database import database_now
from vouchers.admin.sale import SeckillVoucherAdmin
from vouchers.admin.sale_list import SaleChangeList, card_of
from vouchers.catalogue.listing import SaleCard, cards
from vouchers.catalogue.staff_texts import NO_ANSWER
from vouchers.models import SaleState, SeckillVoucher


class SaleSumList(SaleChangeList):
    """The list of sales with their balances, which cost one more statement."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        _add_up(self.result_list)


@admin.register(SeckillVoucher)
class SaleAdmin(SeckillVoucherAdmin):
    """Sales with their balance (Redis compared with the orders) and its repair."""

    list_display: Any = (*SeckillVoucherAdmin.list_display, "sum")
    readonly_fields: ClassVar[Any] = (*SeckillVoucherAdmin.readonly_fields, "sum")
    actions: Any = (*SeckillVoucherAdmin.actions, "reconcile")

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        title, state, *others = self.list_display
        return (title, state, "board", *others)  # visible without scrolling

    def get_urls(self) -> list[URLPattern]:
        return [
            *board_urls(self),
            sale_url(self, "report/", report_page, "sale-report"),
            sale_url(self, "report/csv/", report_file, "sale-report-csv"),
            sale_url(self, "report/room/", room_file, "sale-report-room"),
            sale_url(self, "waiting/", waiting_page, "sale-waiting"),
            sale_url(self, "codes/", codes_page, "sale-codes"),
            sale_url(self, "codes/csv/", codes_file, "sale-codes-csv"),
            sale_url(self, "rehearse/", rehearse_sale, "sale-rehearse"),
            *super().get_urls(),
        ]

    def get_fieldsets(self, request: HttpRequest, obj: SeckillVoucher | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None:
            now = fieldsets[0][1]
            now["fields"] = (*now["fields"], "sum")
            now["description"] = _("The balance is: total = left + queued + orders.")
        return fieldsets

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SaleSumList

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> SeckillVoucher | None:
        sale: SeckillVoucher | None = super().get_object(request, *args, **kwargs)
        if sale is not None and request.method == "GET":
            # Read once, so that all fields of the page show the same moment.
            sale.card = cards(sales=[sale], now=database_now())[0]  # type: ignore[attr-defined]
            _add_up([sale])
        return sale

    @admin.display(description=_("balance"))
    def sum(self, sale: SeckillVoucher) -> str:
        balance: SaleSum | None = getattr(sale, "sum", None)
        if balance is None:
            return f"– ({gettext('not loaded')})"
        return _as_text(balance)

    @admin.display(description=_("board"), empty_value="")
    def board(self, sale: SeckillVoucher) -> str | None:
        """Return a link to the board of a sale that is not over."""
        if card_of(sale).state is SaleState.ENDED:
            return None
        url = reverse("admin:sale-board", args=[sale.pk])
        return format_html('<a href="{}">{}</a>', url, gettext("Board"))

    @admin.action(description=_("Reconcile"), permissions=["run"])
    def reconcile(self, request: HttpRequest, queryset: QuerySet[SeckillVoucher]) -> None:
        for sale in queryset:
            try:
                reconcile_and_tell(request, sale)
            except SeckillVoucher.DoesNotExist:
                continue  # deleted in the meantime
            except UNAVAILABLE:
                self.message_user(request, NO_ANSWER, messages.ERROR)
                return


def reconcile_and_tell(request: HttpRequest, sale: SeckillVoucher) -> None:
    """Reconcile a sale and tell the user the outcome.

    :raises SeckillVoucher.DoesNotExist: it was deleted meanwhile.
    """
    before, after = _reconciled(sale_id=sale.pk)
    level, text = _outcome(before, after)
    values = {"sale": sale, "before": before.difference, "after": after.difference}
    messages.add_message(request, level, text % values)


def _add_up(sales: Iterable[SeckillVoucher]) -> None:
    """Set the balance of each loaded sale; the sales must have their cards."""
    sales = list(sales)
    live = Count("orders", filter=Q(orders__live=True))
    counted = SeckillVoucher.objects.filter(pk__in=[sale.pk for sale in sales])
    rows = counted.annotate(live_orders=live).values_list("pk", "stock", "live_orders")
    counts = {pk: (stock, live_orders) for pk, stock, live_orders in rows}
    for sale in sales:
        card: SaleCard = sale.card  # type: ignore[attr-defined]
        if card.remaining is None or card.pending is None or sale.pk not in counts:
            continue
        stock, live_orders = counts[sale.pk]
        sale.sum = SaleSum(stock, card.remaining, card.pending, live_orders)  # type: ignore[attr-defined]


def _as_text(balance: SaleSum) -> str:
    """Return the balance with its verdict as text or an icon, not as colour alone."""
    terms = f"{balance.left} + {balance.pending} + {balance.live}"
    text = sum_verdict(balance)["text"]
    if balance.difference == 0:
        tick = static("admin/img/icon-yes.svg")
        return format_html('{} = {} <img src="{}" alt="{}">', balance.total, terms, tick, text)
    if balance.in_flight:
        return f"{balance.total} = {terms} − {text}"
    cross = static("admin/img/icon-no.svg")
    return format_html(
        '{} ≠ {} <img src="{}" alt=""> <strong>{}</strong>', balance.total, terms, cross, text
    )


def _reconciled(*, sale_id: int) -> tuple[Comparison, Comparison]:
    """Compare a sale, repair it if needed, and return the comparisons before and after."""
    before = reconcile(sale_id=sale_id)
    if before.remaining is not None and before.difference == 0:
        return before, before
    return before, reconcile(sale_id=sale_id, repair=True)


def _outcome(before: Comparison, after: Comparison) -> tuple[int, str]:
    """Return the level and the text that report a reconciliation."""
    if after.difference:
        return messages.ERROR, gettext("%(sale)s: still off by %(after)s.")
    if before.difference:
        return messages.WARNING, gettext("%(sale)s: was off by %(before)s and has been repaired.")
    if before.remaining is None:
        return messages.SUCCESS, gettext("%(sale)s: was not loaded. It is loaded now and adds up.")
    return messages.SUCCESS, gettext("%(sale)s: adds up.")
