"""The counter: staff check a voucher's code and redeem it once."""

import datetime as dt
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses, counted_guess
from orders.lifecycle.redemption import (
    GUESSES,
    NoSuchCode,
    NotRedeemable,
    PastValidity,
    Redeemable,
    find_by_code,
    redeem,
    written_code,
)
from orders.lifecycle.transitions import Actor
from orders.models import OrderStatus
from orders.web.order_api import login_required_answer
from seckill_site.clocks.database import database_now
from seckill_site.web.middleware import permissions_policy
from seckill_site.web.responses import allow, for_owner

LONGEST_REASON = 200
"""The characters of a reason that the history keeps."""

CACHE_AWAY_S = 5
"""Seconds before a retry if wrong codes cannot be counted."""

CAMERA_ALLOWED = permissions_policy("camera")
"""The counter scans codes with the camera of a phone or laptop; no other page may use one."""

_VERDICTS = {OrderStatus.PAID: "valid", OrderStatus.USED: "used_before"}


def redeem_permission_required(
    view: Callable[[HttpRequest], HttpResponse],
) -> Callable[..., HttpResponseBase]:
    """Require a member of staff with the permission to redeem."""

    @wraps(view)
    def wrapped(request: HttpRequest) -> HttpResponseBase:
        if request.user.pk is None:
            return login_required_answer(request)
        if not (request.user.is_staff and request.user.has_perm("orders.redeem_voucherorder")):
            raise PermissionDenied
        return for_owner(view(request))

    return wrapped


@allow("GET", "HEAD", "POST")
@redeem_permission_required
def redeem_page(request: HttpRequest) -> HttpResponse:
    """Show the form; with POST, redeem a code, or show with ``check`` whether it is valid.

    Codes come by POST alone, because addresses are logged.
    """
    user_id = request.user.pk or 0
    code = request.POST.get("code", "").strip()
    if not code:
        return _page(request, "")
    now = database_now()
    try:
        with counted_guess(GUESSES, user_id=user_id, now=now):
            if "check" not in request.POST:
                why = " ".join(request.POST.get("why", "").split())[:LONGEST_REASON]
                used = redeem(code=code, by=Actor.staff(user_id), now=now, why=why)
                return _page(request, "redeemed", used)
            return _voucher_page(request, find_by_code(code=code), now=now)
    except (NotRedeemable, PastValidity) as error:
        return _voucher_page(request, error.redeemable, now=now, status=409)
    except NoSuchCode:
        return _page(request, "no_such_code", typed=code, status=404)
    except TooManyGuesses as error:
        return _page(request, "too_many", retry_after_s=error.retry_after_s, status=429)
    except GuessesUnknown:
        return _page(request, "away", typed=code, retry_after_s=CACHE_AWAY_S, status=503)


def _voucher_page(
    request: HttpRequest, redeemable: Redeemable, *, now: dt.datetime, status: int = 200
) -> HttpResponse:
    verdict = _VERDICTS.get(OrderStatus(redeemable.order.status), "not_valid")
    verdict = "disputed" if verdict == "valid" and redeemable.is_disputed else verdict
    verdict = "past" if verdict == "valid" and redeemable.is_past(now) else verdict
    return _page(request, verdict, redeemable, status=status)


def _page(
    request: HttpRequest,
    verdict: str,
    redeemable: Redeemable | None = None,
    *,
    typed: str = "",
    retry_after_s: int | None = None,
    status: int = 200,
) -> HttpResponse:
    """Return the page with a verdict (none: only the form) and the voucher it is about."""
    context: dict[str, Any] = {
        "verdict": verdict,
        "redeemable": redeemable,
        "code": written_code(redeemable.order.code or "") if redeemable else "",
        "typed": typed,
        "retry_after_s": retry_after_s,
    }
    response = render(request, "orders/redeem.html", context, status=status)
    response["Permissions-Policy"] = CAMERA_ALLOWED
    if retry_after_s is not None:
        response["Retry-After"] = str(retry_after_s)
    return response
