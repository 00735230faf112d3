"""The admin's list of sales: columns, filters, live figures and actions."""

import datetime as dt
from collections.abc import Collection
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.clocks.database import database_now
from seckill_site.formatting import (
    NO_VALUE,
    duration,
    grouped,
    money,
    spelled_duration,
    time_window,
)
from seckill_site.web.admin_lists import ConditionFilter, column, moment, pill
from vouchers.catalogue.listing import SaleCard, cards
from vouchers.catalogue.series import MOST_SALES
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.rebuild import load_sale
from vouchers.models import SaleStage, SaleState, SeckillVoucher

STATES = {
    SaleStage.DRAFT: SaleStage.DRAFT.label,
    SaleState.SCHEDULED: SaleState.SCHEDULED.label,
    SaleState.OPEN: _("on sale"),
    SaleState.SOLD_OUT: SaleState.SOLD_OUT.label,
    SaleState.PAUSED: SaleState.PAUSED.label,
    SaleState.ENDED: SaleState.ENDED.label,
}
"""The states as staff sees them: a draft at any time, else the state that buyers see."""

TONES = {
    SaleState.OPEN: "live",
    SaleState.SOLD_OUT: "good",
    SaleState.PAUSED: "warn",
}
"""The colour of a state's pill."""


class SaleChangeList(ChangeList):
    """The list of sales with their live figures, in one round trip to Redis per page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        for card in cards(sales=self.result_list, now=database_now()):
            card.sale.card = card  # type: ignore[attr-defined]


class StateFilter(ConditionFilter):
    """Sales by their state in the database, where a reserved unit is not sold yet."""

    title = _("state")
    parameter_name = "state"
    labels = STATES

    def conditions(self, now: dt.datetime) -> dict[str, Q]:
        """Return the condition of each state; agrees with ``SeckillVoucher.state_at``."""
        draft, over, paused = Q(stage=SaleStage.DRAFT), Q(ends_at__lte=now), Q(paused=True)
        going_on = ~draft & ~over & ~paused
        started, sold_out = Q(begins_at__lte=now), Q(sold__gte=F("stock"))
        return {
            SaleStage.DRAFT: draft,
            SaleState.ENDED: ~draft & over,
            SaleState.PAUSED: ~draft & ~over & paused,
            SaleState.SCHEDULED: going_on & ~started,
            SaleState.SOLD_OUT: going_on & started & sold_out,
            SaleState.OPEN: going_on & started & ~sold_out,
        }


class WhenFilter(ConditionFilter):
    """Sales by their window."""

    title = _("time")
    parameter_name = "when"
    labels = {"coming": _("upcoming"), "running": _("running"), "over": _("ended")}

    def conditions(self, now: dt.datetime) -> dict[str, Q]:
        started, over = Q(begins_at__lte=now), Q(ends_at__lte=now)
        return {"coming": ~started, "running": started & ~over, "over": over}


def card_of(sale: SeckillVoucher) -> SaleCard:
    """Return the live figures that the list fetched, or fetch them for a single sale."""
    card: SaleCard = getattr(sale, "card", None) or cards(sales=[sale], now=database_now())[0]
    return card


class SaleColumns:
    """The columns of the list, and the read-only fields of a sale's page."""

    called = column(_("voucher"), lambda it: it.voucher.local_title, ordering="voucher__title")
    title = column(_("voucher"), lambda it: it.voucher.title)

    @admin.display(description=_("state"))
    def state(self, sale: SeckillVoucher) -> str:
        if sale.stage == SaleStage.DRAFT:
            return pill("", STATES[SaleStage.DRAFT])
        card = card_of(sale)
        shown = pill(TONES.get(card.state, ""), STATES[card.state])
        if card.remaining is not None:
            return shown
        return format_html('{} <span class="office-why">{}</span>', shown, gettext("not ready yet"))

    total = column(_("total"), lambda it: grouped(it.stock), ordering="stock")
    sold_units = column(_("sold"), lambda it: grouped(it.sold), ordering="sold")

    left = column(_("left"), lambda it: NO_VALUE if it.is_draw else grouped(card_of(it).remaining))
    pending = column(_("queued"), lambda it: grouped(card_of(it).pending))

    window = column(
        _("time"),
        lambda it: moment(it.begins_at, time_window(it.begins_at, it.ends_at)),
        ordering="begins_at",
    )

    # Named like the fields of the form, for staff who may only view them.

    rules = column(_("Rules"), lambda it: it.voucher.rules)
    title_en = column(_("English title"), lambda it: it.voucher.title_en or NO_VALUE)
    rules_en = column(_("English rules"), lambda it: it.voucher.rules_en or NO_VALUE)
    merchant = column(
        _("Merchant"),
        lambda it: str(it.voucher.merchant or NO_VALUE),
        ordering="voucher__merchant__name",
    )
    valid_where = column(_("Where it is valid"), lambda it: it.voucher.place or NO_VALUE)
    valid_until = column(_("Valid until"), lambda it: str(it.voucher.valid_until or NO_VALUE))
    price = column(_("Price"), lambda it: money(it.voucher.price_cents))
    face_value = column(_("Face value"), lambda it: money(it.voucher.face_value_cents))
    pay_within = column(_("Time to pay"), lambda it: spelled_duration(it.pay_within_s))

    @admin.display(description=_("refund unused vouchers"), boolean=True)
    def refunds_unused(self, sale: SeckillVoucher) -> bool:
        return bool(sale.refund_unused)

    @admin.display(description=_("Waiting list after the draw"))
    def draw_wait(self, sale: SeckillVoucher) -> str:
        return duration(dt.timedelta(seconds=sale.draw_wait_s)) if sale.draw_wait_s else NO_VALUE

    @admin.display(description=_("Current picture"))
    def picture_now(self, sale: SeckillVoucher) -> str:
        digest = sale.voucher.picture_id
        if not digest:
            return NO_VALUE
        url = reverse("picture", args=[digest])
        text = gettext("The picture of “%(title)s”") % {"title": sale.voucher.local_title}
        return format_html('<img class="sale-picture" src="{}" alt="{}">', url, text)


# --- Actions -------------------------------------------------------------------------------------


def list_of(ids: Collection[object]) -> str:
    """Return the address of the list; of several sales, they are alone, to be handled together."""
    url = reverse("admin:vouchers_seckillvoucher_changelist")
    return f"{url}?id__in={','.join(map(str, ids))}" if len(ids) > 1 else url


def lead_on(
    page: str, model_admin: Any, request: HttpRequest, queryset: QuerySet[SeckillVoucher]
) -> HttpResponse | None:
    """Lead to the page that asks about the chosen sales."""
    ids = list(queryset.order_by("pk").values_list("pk", flat=True)[: MOST_SALES + 1])
    if len(ids) > MOST_SALES:
        text = gettext("At most %(most)s sales can be chosen at once.") % {"most": MOST_SALES}
        model_admin.message_user(request, text, messages.ERROR)
        return None
    return HttpResponseRedirect(f"{reverse(page)}?ids={','.join(map(str, ids))}")


def page_action(name: str, label: Any, *, permission: str) -> Any:
    """Return the action of the list that leads to the page ``sale-<name>``."""
    action = partial(lead_on, f"admin:sale-{name}")
    action.__name__ = name  # type: ignore[attr-defined]
    return admin.action(description=label, permissions=[permission])(action)


@admin.action(description=_("Copy"), permissions=["add"])
def copy(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[SeckillVoucher]
) -> HttpResponse | None:
    """Open the form of a new sale like the one chosen, or the plan of several copies."""
    if len(ids := list(queryset.values_list("pk", flat=True)[:2])) == 1:
        return HttpResponseRedirect(reverse("admin:sale-copy", args=ids))
    return lead_on("admin:sale-copies", model_admin, request, queryset)


@admin.action(description=_("Make ready to sell"), permissions=["run"])
def load_into_redis(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[SeckillVoucher]
) -> None:
    """Load the ledgers now instead of for the first buyer."""
    try:
        for sale in queryset:
            load_sale(sale_id=sale.pk, bring_back=True)
    except LedgerUnavailable:
        text = gettext("Redis did not respond. Try again.")
        model_admin.message_user(request, text, messages.ERROR)
        return
    model_admin.message_user(request, gettext("Ready to sell."), messages.SUCCESS)
