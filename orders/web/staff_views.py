"""The counter: staff check a voucher's code, redeem it once, and undo mistakes."""

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from secrets import token_urlsafe
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.dateparse import parse_date

from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses, counted_guess
from orders.lifecycle.redemption import (
    GUESSES,
    NoSuchCode,
    NotRedeemable,
    NotUndoable,
    OtherMerchant,
    Redeemable,
    find_by_code,
    may_undo_alone,
    read_code,
    redeem,
    undo,
    uses_on,
    written_code,
)
from orders.lifecycle.transitions import Actor
from orders.models import CODE_LENGTH, PROGRAM, OrderEvent, OrderStatus
from orders.web.order_api import login_required_answer
from seckill_site.clocks.database import database_now
from seckill_site.web.middleware import permissions_policy
from seckill_site.web.responses import allow, for_owner
from vouchers.models import YEARS, Merchant

LONGEST_REASON, LONGEST_KEY = 200, 64
"""The characters of a reason and of a key that the history keeps."""

CACHE_AWAY_S = 5
"""Seconds before a retry if wrong codes cannot be counted."""

ROWS = 100
"""The uses on one page of a day."""

CAMERA_ALLOWED = permissions_policy("camera")
"""The counter scans codes with the camera of a phone or laptop; no other page may use one."""

_VERDICTS = {OrderStatus.PAID: "valid", OrderStatus.USED: "used_before"}


def redeem_permission_required(
    view: Callable[..., HttpResponse],
) -> Callable[..., HttpResponseBase]:
    """Require a member of staff with the permission to redeem."""

    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if request.user.pk is None:
            return login_required_answer(request)
        if not (request.user.is_staff and request.user.has_perm("orders.redeem_voucherorder")):
            raise PermissionDenied
        return for_owner(view(request, **kwargs))

    return wrapped


def _is_operator(request: HttpRequest) -> bool:
    return request.user.has_perm("orders.end_voucherorder")


def _reason(request: HttpRequest) -> str:
    return " ".join(request.POST.get("why", "").split())[:LONGEST_REASON]


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
    now, merchants = database_now(), Merchant.redeemed_by(request.user)
    try:
        with counted_guess(GUESSES, user_id=user_id, now=now):
            if "check" in request.POST:
                found = find_by_code(code=code, merchants=merchants)
                return _voucher_page(request, found, now=now)
            used, repeated = redeem(
                code=code,
                by=Actor.staff(user_id),
                now=now,
                key=request.POST.get("key", "")[:LONGEST_KEY],
                why=_reason(request),
                merchants=merchants,
            )
    except NotRedeemable as error:
        return _voucher_page(request, error.redeemable, now=now, status=409)
    except OtherMerchant as error:
        return _page(request, "other_merchant", code, merchant=error.merchant, status=403)
    except NoSuchCode:
        missing = CODE_LENGTH - len(read_code(code))
        return _page(request, "no_such_code", code, missing=missing, status=404)
    except TooManyGuesses as error:
        return _page(request, "too_many", code, retry_after_s=error.retry_after_s, status=429)
    except GuessesUnknown:
        return _page(request, "away", code, retry_after_s=CACHE_AWAY_S, status=503)
    return _voucher_page(request, used, now=now, verdict="repeated" if repeated else "redeemed")


@allow("GET", "HEAD", "POST")
@redeem_permission_required
def undo_page(request: HttpRequest, *, event_id: int) -> HttpResponse:
    """Undo the use of a voucher: by who redeemed it just now, else by an operator."""
    if request.method != "POST":  # back from the sign-in
        return redirect("redemptions")
    by, now = Actor.staff(request.user.pk), database_now()
    is_operator, merchants = _is_operator(request), Merchant.redeemed_by(request.user)
    may: dict[str, Any] = {"is_operator": is_operator, "merchants": merchants}
    try:
        undone = undo(event_id=event_id, by=by, now=now, why=_reason(request), **may)
    except (OrderEvent.DoesNotExist, NoSuchCode):
        raise Http404 from None
    except OtherMerchant as error:
        return _page(request, "other_merchant", merchant=error.merchant, status=403)
    except NotUndoable as error:
        return _voucher_page(request, error.redeemable, now=now, verdict="not_undoable", status=409)
    return _voucher_page(request, undone, now=now, verdict="undone")


@allow("GET", "HEAD")
@redeem_permission_required
def redemptions_page(request: HttpRequest) -> HttpResponse:
    """Show what somebody redeemed on a day: their own; an operator may choose whose."""
    user_id, now = request.user.pk or 0, database_now()
    day, is_operator = _day(request) or timezone.localdate(now), _is_operator(request)
    uses = uses_on(day)
    asked, others = request.GET.get("by", "")[:19], {}
    if is_operator:
        names = uses.exclude(actor=None).order_by("actor__username")
        others = dict(names.values_list("actor", "actor__username").distinct())
        if asked.isdecimal():  # on another day too
            staff = User.objects.filter(pk=int(asked), is_staff=True)
            others |= dict(staff.values_list("pk", "username"))
    by = next((pk for pk in others if str(pk) == asked), user_id)
    uses = uses.filter(actor=by)
    page = Paginator(uses, ROWS).get_page(request.GET.get("page"))
    context = {
        "day": day,
        "page": page,
        "count": uses.filter(undone=False).count(),
        "others": others.items(),
        "by": by,
        "is_operator": is_operator,
        "undoable": [it.pk for it in page if may_undo_alone(it, user_id=user_id, now=now)],
    }
    return render(request, "orders/redemptions.html", context)


def _day(request: HttpRequest) -> dt.date | None:
    """Return the day that is asked for, if it is one of a sale's years."""
    with suppress(ValueError):
        day = parse_date(request.GET.get("day", ""))
        return day if day and YEARS[0] <= day.year <= YEARS[1] else None
    return None


def _voucher_page(
    request: HttpRequest,
    redeemable: Redeemable,
    *,
    now: dt.datetime,
    verdict: str = "",
    status: int = 200,
) -> HttpResponse:
    request.looked_at = f"order:{redeemable.order.pk}"  # type: ignore[attr-defined]
    use, user_id, has_lapsed = redeemable.use, request.user.pk, redeemable.has_lapsed(now)
    may_alone = may_undo_alone(use, user_id=user_id, now=now)
    if not verdict or (verdict == "repeated" and not may_alone):  # later it is no lost answer
        verdict = _VERDICTS.get(OrderStatus(redeemable.order.status), "not_valid")
        verdict = "disputed" if verdict == "valid" and redeemable.is_disputed else verdict
        if verdict == "valid" and redeemable.is_past(now):
            verdict = "lapsed" if has_lapsed else "past"
        is_own = use and use.actor_id == user_id and not use.reason.startswith(PROGRAM)
        verdict = "own" if is_own else verdict
    about: dict[str, Any] = {
        "may_undo_alone": may_alone,
        "may_undo": use is not None and _is_operator(request),
        "redeemable": redeemable,
        "has_lapsed": has_lapsed,
        "may_be_used": redeemable.may_be_used and not has_lapsed,
        "key": token_urlsafe(16),
    }
    code = written_code(redeemable.order.code or "")
    return _page(request, verdict, code, status=status, **about)


def _page(
    request: HttpRequest,
    verdict: str,
    code: str = "",
    *,
    retry_after_s: int | None = None,
    status: int = 200,
    **context: Any,
) -> HttpResponse:
    """Return the page with a verdict (none: only the form) and the code it is about."""
    context |= {
        "verdict": verdict,
        "code": code,
        "retry_after_s": retry_after_s,
        # Codes that wait on a device are of one session.
        "session": salted_hmac("counter", request.session.session_key or "").hexdigest(),
    }
    response = render(request, "orders/redeem.html", context, status=status)
    response["Permissions-Policy"] = CAMERA_ALLOWED
    if retry_after_s is not None:
        response["Retry-After"] = str(retry_after_s)
    return response
