"""Today in the admin: the home page of everybody who does more than redeem."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext

from backoffice.admin.pages import office
from backoffice.navigation import desk_of, remember_desk
from backoffice.today.figures import Rights, read_today
from backoffice.today.texts import SENTENCES, alerts, figures, next_card, refund_figures, sale_cards
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from vouchers.models import RUN_PERMISSION


@office.page("", name="index")
def today_page(request: HttpRequest) -> HttpResponse:
    """Show Today to all staff but cashiers, who go to their counter.

    Its script asks for the page again and replaces what has changed.
    """
    user, rights = request.user, _rights(request)
    remember_desk(request, user)  # type: ignore[arg-type]
    if desk_of(user) == "redeem":
        return HttpResponseRedirect(reverse("redeem"))
    may_rehearse = user.has_perm("orders.add_rehearsal")
    today = read_today(now=database_now(), rights=rights)
    context: dict[str, Any] = {
        "title": gettext("Today"),
        "today": today,
        "now_ms": epoch_ms(today.now),
        "sentences": SENTENCES,
        "rights": rights,
        "sees_nothing": rights == Rights(),
        "sales": sale_cards(today, may_run=user.has_perm(RUN_PERMISSION)),
        "next": next_card(today.next, may_rehearse=may_rehearse) if today.next else None,
        "figures": figures(today, rights=rights) if rights.orders else [],
        "refunds": refund_figures(today.refunds) if today.refunds else [],
        "alerts": alerts(today, rights=rights),
    }
    return office.show(request, "today.html", **context)


def _rights(request: HttpRequest) -> Rights:
    may = request.user.has_perm
    return Rights(
        sales=may("vouchers.view_seckillvoucher"),
        orders=may("orders.view_voucherorder"),
        payments=may("orders.view_payment"),
        system=may("locks.view_lock"),
    )
