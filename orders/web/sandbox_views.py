"""The payment page of the sandbox."""

import logging

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from kombu.exceptions import OperationalError

from orders.models import SandboxTrade
from orders.payments.providers import ChargeState, provider_named
from orders.payments.sandbox import Choice, NotOpen, Sandbox, decide, publish_notification, state_of
from seckill_site.clocks.database import database_now
from seckill_site.web.responses import allow, for_owner, problem

logger = logging.getLogger(__name__)


@allow("GET", "HEAD", "POST")
def pay_page(request: HttpRequest, *, reference: str) -> HttpResponseBase:
    """Show a charge with its choices; apply a choice and redirect to the shop."""
    try:
        provider_named(Sandbox.name)  # the settings may not name the sandbox
        trade = SandboxTrade.objects.get(reference=reference)
    except (LookupError, SandboxTrade.DoesNotExist):
        message = _("Payment not found.")
        return problem(request, status=404, code="not_found", message=message)
    if request.method == "POST":
        return for_owner(_decided(request, trade))
    return for_owner(_page(request, trade))


def _decided(request: HttpRequest, trade: SandboxTrade) -> HttpResponse:
    try:
        choice = Choice(request.POST.get("choice", ""))
    except ValueError:
        message = _("This choice is not available.")
        return problem(request, status=400, code="invalid", message=message)
    try:
        pauses_s = decide(reference=trade.reference, choice=choice, now=database_now())
    except NotOpen:
        trade.refresh_from_db()
        return _page(request, trade, status=409)
    _notify(trade, pauses_s)
    return HttpResponse(status=303, headers={"Location": trade.return_url})


def _notify(trade: SandboxTrade, pauses_s: tuple[int, ...]) -> None:
    """Send the notifications; if the broker is down, the shop asks by itself."""
    try:
        for pause_s in pauses_s:
            publish_notification(reference=trade.reference, in_s=pause_s)
    except (OperationalError, OSError) as error:
        logger.warning("no notification of charge %s, the shop will ask: %r", trade, error)


def _page(request: HttpRequest, trade: SandboxTrade, *, status: int = 200) -> HttpResponse:
    now = database_now()
    state = state_of(trade, now=now)
    too_late = state is ChargeState.CLOSED and now >= trade.pay_by
    context = {"trade": trade, "state": state, "too_late": too_late}
    return render(request, "orders/sandbox.html", context, status=status)
