"""System in the admin: servers, checks, balances, mails, and the tables behind the shop."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext

from backoffice.admin.pages import check_may, office
from backoffice.admin.sales import reconcile_and_tell
from backoffice.board.snapshot import read_boards
from backoffice.board.texts import clock_texts, sum_verdict
from backoffice.job_engine import UNAVAILABLE
from backoffice.navigation import SYSTEM
from backoffice.today.figures import has_problem, late_by_s, unsent_mails, watched_sales
from backoffice.today.texts import PARTS, board_alert, late_texts, processes
from seckill_site.broker.heartbeats import read_heartbeats
from seckill_site.clocks.database import database_now
from seckill_site.clocks.steps import ClocksUnsettled, settled_clocks
from seckill_site.clocks.watch import wrong_clocks
from seckill_site.health import current_errors, current_parts
from seckill_site.web.clients import client_network
from vouchers.catalogue.staff_texts import NO_ANSWER
from vouchers.models import RUN_PERMISSION, SeckillVoucher

SHOWN_MAILS = 20


@office.page("system/", name="system")
def system_page(request: HttpRequest) -> HttpResponse:
    """Show whether everything works, and what helps if it does not."""
    if not SYSTEM.may_see(request.user):
        raise PermissionDenied
    now, parts = database_now(), current_parts()
    may_see_orders = request.user.has_perm("orders.view_voucherorder")
    boards = read_boards(sales=watched_sales(now), now=now)
    mails = unsent_mails().select_related("order__user").order_by("pk") if may_see_orders else None
    context: dict[str, Any] = {
        "title": gettext("System"),
        # Whether orders are written is for the workers' own rows to say; a pause of theirs is not.
        "parts": [(PARTS[it], ok) for it, ok in parts.items() if not (ok and it == "orders")],
        "processes": processes(read_heartbeats(parts), now=now),
        "clocks": _clock_texts() if parts.get("redis") else [],
        "checks": current_errors(parts),
        "has_addresses": client_network(request.META) != "",
        "late": [
            *(board_alert(it).text for it in boards if has_problem(it)),
            *late_texts(late_by_s(now)),
        ],
        "balances": [(board, sum_verdict(board.sum)) for board in boards],
        "mails": mails[:SHOWN_MAILS] if mails is not None else [],
        "tables": next(
            (it["models"] for it in office.get_app_list(request) if it["app_label"] == "system"),
            [],
        ),
    }
    return office.show(request, "system.html", **context)


def _clock_texts() -> list[str]:
    try:
        settled_clocks()
    except ClocksUnsettled:
        return clock_texts(wrong_clocks(), are_settled=False)
    return clock_texts(wrong_clocks())


@office.page("system/reconcile/<id:sale_id>/", name="system-reconcile")
def reconcile_page(request: HttpRequest, sale_id: int) -> HttpResponse:
    """Reconcile one sale, and go back to the page of the system."""
    check_may(request, RUN_PERMISSION)
    if request.method == "POST":
        sale = get_object_or_404(SeckillVoucher.objects.select_related("voucher"), pk=sale_id)
        try:
            reconcile_and_tell(request, sale)
        except UNAVAILABLE:
            messages.error(request, NO_ANSWER)
    return HttpResponseRedirect(reverse("admin:system"))
