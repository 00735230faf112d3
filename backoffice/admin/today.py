"""Today in the admin: the home page of everybody who does more than redeem."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext

from backoffice.admin.pages import office, office_page
from backoffice.navigation import REDEEM
from backoffice.today.figures import Rights, Today, read_today
from backoffice.today.texts import SENTENCES, alerts, figures, next_card, sale_cards
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from vouchers.models import RUN_PERMISSION


def today_page(request: HttpRequest) -> HttpResponse:
    """Show Today. Its script asks for the page again and replaces what has changed."""
    user, rights = request.user, _rights(request)
    may_rehearse = user.has_perm("orders.add_rehearsal")
    today = read_today(now=database_now(), rights=rights)
    context: dict[str, Any] = {
        "title": gettext("Today"),
        "today": today,
        "now_ms": epoch_ms(today.now),
        "sentences": SENTENCES,
        "rights": rights,
        "sees_nothing": rights == Rights(),
        "buttons": _buttons(request),
        "sales": sale_cards(today, may_run=user.has_perm(RUN_PERMISSION)),
        "sales_url": reverse("admin:vouchers_seckillvoucher_changelist"),
        "next": next_card(today.next, may_rehearse=may_rehearse) if today.next else None,
        "figures": figures(today.trade, may_see_payments=rights.payments) if rights.orders else [],
        "alerts": alerts(today),
        "unknown": _unknown(today, rights),
    }
    return office_page(request, "today.html", **context).render()


def _rights(request: HttpRequest) -> Rights:
    may = request.user.has_perm
    return Rights(
        sales=may("vouchers.view_seckillvoucher"),
        orders=may("orders.view_voucherorder"),
        payments=may("orders.view_payment"),
        system=may("locks.view_lock"),
    )


def _buttons(request: HttpRequest) -> list[tuple[str, str, str]]:
    """Return what staff starts most often: key, text and address of each."""
    may = request.user.has_perm
    may_import = may("vouchers.add_voucher") and may("vouchers.change_voucher")
    buttons = [
        (
            "new",
            gettext("New sale"),
            reverse("admin:vouchers_seckillvoucher_add"),
            may("vouchers.add_seckillvoucher"),
        ),
        ("redeem", gettext("Redeem"), reverse("redeem"), may(REDEEM)),
        ("import", gettext("Import"), reverse("admin:vouchers_voucher_import"), may_import),
    ]
    return [(key, text, url) for key, text, url, allowed in buttons if allowed]


def _unknown(today: Today, rights: Rights) -> str:
    """Return what the page cannot know at the moment, if anything."""
    if rights.sales and not today.ledger_answers:
        return gettext(
            "Redis is not responding, so nobody can buy right now. What is left, the rates and "
            "whether sales are loaded are unknown."
        )
    return ""


office.add_home(today_page)
