"""Sales in the admin: balances and reconciliation."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import Group
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import TEXTS
from backoffice.admin.pauses import PAUSE_ACTIONS
from backoffice.admin.stages import STAGE_ACTIONS
from backoffice.board.snapshot import SaleSum
from backoffice.board.texts import sum_verdict
from backoffice.job_engine import UNAVAILABLE
from orders.fulfilment.reconcile import reconcile
from orders.roles import Role
from seckill_site.clocks.database import database_now
from seckill_site.web.admin_lists import pill
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
    actions: Any = (*STAGE_ACTIONS, *PAUSE_ACTIONS, *SeckillVoucherAdmin.actions, "reconcile")

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        title, state, *others = self.list_display
        return (title, state, "board", *others)  # visible without scrolling

    def get_fieldsets(self, request: HttpRequest, obj: SeckillVoucher | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None:
            now = fieldsets[0][1]
            now["fields"] = (*now["fields"], "sum")
            now["description"] = _("The balance is: total = left + queued + orders.")
        return fieldsets

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Offer groups of buyers: those of staff only where a sale already is for them."""
        if db_field.name == "group":
            used = Q(pk__in=SeckillVoucher.objects.exclude(group=None).values("group"))
            kwargs["queryset"] = Group.objects.filter(~Q(name__in=Role.values) | used)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

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
            return f"– ({gettext('not ready yet')})"
        return _as_text(balance)

    @admin.display(description=_("board"))
    def board(self, sale: SeckillVoucher) -> str:
        """Return a link to the board of a sale, or to its report once it is over."""
        is_over = card_of(sale).state is SaleState.ENDED
        page, text = ("report", gettext("Report")) if is_over else ("board", gettext("Board"))
        url = reverse(f"admin:sale-{page}", args=[sale.pk])
        return format_html('<a href="{}">{}</a>', url, text)

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
    before = after = reconcile(sale_id=sale.pk)
    if before.remaining is None or before.difference:
        after = reconcile(sale_id=sale.pk, repair=True)
    level, outcome = messages.SUCCESS, "fits" if before.remaining is not None else "loaded"
    if after.difference:
        level, outcome = messages.ERROR, "still_off"
    elif before.difference:
        level, outcome = messages.WARNING, "repaired"
    values = {"sale": sale, "before": before.difference, "after": after.difference}
    messages.add_message(request, level, TEXTS["reconciled"][outcome] % values)


def _add_up(sales: Iterable[SeckillVoucher]) -> None:
    """Set the balance of each loaded sale; the sales must have their cards.

    Where the ledger was removed, nothing is left to compare: the row says what was sold.
    """
    loaded = {it.pk: it for it in sales if it.card.remaining is not None}  # type: ignore[attr-defined]
    live = Count("orders", filter=Q(orders__live=True))
    compared = SeckillVoucher.objects.filter(pk__in=loaded, ledger_removed_at=None)
    counted = compared.annotate(live_orders=live).values_list("pk", "stock", "live_orders")
    removed = [(it.pk, it.stock, it.sold) for it in loaded.values() if it.ledger_removed_at]
    for pk, stock, live_orders in (*counted, *removed):
        card: SaleCard = loaded[pk].card  # type: ignore[attr-defined]
        if card.remaining is not None and card.pending is not None:
            balance = SaleSum(stock, card.remaining, card.pending, live_orders)
            loaded[pk].sum = balance  # type: ignore[attr-defined]


def _as_text(balance: SaleSum) -> str:
    """Return the verdict of a balance, not as colour alone, with its sum on demand."""
    verdict = sum_verdict(balance)
    tone = {"fits": "good", "off": "bad"}.get(verdict["code"], "")
    sign = "≠" if verdict["code"] == "off" else "="
    terms = f"{balance.total} {sign} {balance.left} + {balance.pending} + {balance.live}"
    if verdict["code"] == "in_flight":
        terms = f"{terms} − {-balance.difference}"
    shown = pill(tone, capfirst(verdict["text"]))
    return format_html("<details><summary>{}</summary> {}</details>", shown, terms)
