"""The pages on which readers ask to be told of a sale, and stop it."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from accounts.sessions import user_of
from orders.lifecycle.notices import (
    BadStopLink,
    Offer,
    ask_notice,
    live_notices,
    notice_offer,
    reader_of_stop_link,
    stop_notices,
)
from orders.web.buyer_views import for_buyer
from orders.web.refusals import refusal_of
from seckill_site.clocks.database import database_now
from seckill_site.web.responses import allow, for_owner, problem, see_page, wants_html


@for_buyer("GET", "HEAD", "POST")
def notice(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show what the reader may be told of a sale; with POST, ask for it."""
    if request.method == "POST":
        ask_notice(sale_id=sale_id, user=user_of(request))
        if wants_html(request):
            return see_page("notice", sale_id)
    return _offer(request, notice_offer(sale_id=sale_id, user=user_of(request)))


@for_buyer("POST")
def stop_notice(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Tell the reader nothing of this sale."""
    stop_notices(user_id=user_of(request).pk, sale_id=sale_id)
    if wants_html(request):
        return see_page("notice", sale_id)
    return _offer(request, notice_offer(sale_id=sale_id, user=user_of(request)))


@allow("GET", "HEAD", "POST")
@login_required
def my_notices(request: HttpRequest) -> HttpResponseBase:
    """List what the reader will be told; with POST, stop all of it."""
    user = user_of(request)
    if request.method == "POST":
        stop_notices(user_id=user.pk)
        return redirect("my-notices")
    notices = live_notices(user_id=user.pk, now=database_now())
    return for_owner(render(request, "orders/notices.html", {"notices": notices}))


# The link is the proof of whose notices it stops: mail programs send it without any cookie.
@csrf_exempt
@allow("GET", "HEAD", "POST")
def stop_by_link(request: HttpRequest, *, token: str) -> HttpResponseBase:
    """Stop all notices of the reader who was sent this link, but only with POST."""
    try:
        user_id = reader_of_stop_link(token)
    except BadStopLink:
        text = _(
            "This link is not valid. "
            "To stop your reminders, sign in and open Reminders under Account."
        )
        return problem(request, status=404, code="not_found", message=text)
    is_stopped = request.method == "POST"
    if is_stopped:
        stop_notices(user_id=user_id)
    return for_owner(render(request, "orders/stop_notices.html", {"is_stopped": is_stopped}))


def _offer(request: HttpRequest, offer: Offer) -> HttpResponse:
    reason = refusal_of(offer.reason) if offer.reason else None
    if wants_html(request):
        context = {"offer": offer, "sale": offer.sale, "reason": reason}
        return render(request, "orders/notice.html", context)
    return JsonResponse(
        {
            "kind": offer.kind,
            "asked": offer.asked,
            "address": offer.address,
            "code": reason.code if reason else None,
        }
    )
