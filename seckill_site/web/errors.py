"""Error answers of the site: each names what is wrong and what to do."""

from __future__ import annotations

import logging
import sys
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _

from seckill_site.web.error_links import seems_signed_in
from seckill_site.web.error_references import new_reference
from seckill_site.web.responses import problem, unavailable, wants_html

logger = logging.getLogger(__name__)

LOGIN_RETRY_AFTER_S = 360

_LAST_RESORT = """<!DOCTYPE html>
<html lang="zh-Hans">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>{status}</title>
  </head>
  <body>
    <h1>我们这边出了问题</h1>
    <p>请稍后<a href="/">回到首页</a>重试。已下的订单不会重复，可在“我的订单”里查看。</p>
    <p>编号：{reference}</p>
    <div lang="en">
      <h1>Something went wrong on our side</h1>
      <p>
        Please try again in a moment, <a href="/">from the front page</a>. What was ordered is not
        ordered twice: see “My orders”.
      </p>
      <p>Reference: {reference}</p>
    </div>
  </body>
</html>
"""
"""What is said where not even the templates or the translations work."""


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        return problem(request, status=413, code="invalid", message=_("The request is too large."))
    return problem(
        request, status=400, code="invalid", message=_("The request could not be understood.")
    )


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer who may not do this: a visitor has to sign in, an account lacks the permission."""
    if seems_signed_in(request):
        message = _("Your account does not have permission to do this.")
    else:
        message = _("You do not have permission to do this. Sign in again.")
    return problem(request, status=403, code="bad_token", message=message, page={"denied": True})


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return problem(
        request,
        status=403,
        code="bad_token",
        message=_("This page was open for too long. Reload it and try again."),
        page={"old_page": True},
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(request, status=404, code="not_found", message=_("Page not found."))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer what nobody expected; a database that is away is expected, and a 503."""
    away = isinstance(sys.exc_info()[1], OperationalError | InterfaceError)
    reference = new_reference(request)
    try:
        return unavailable(request) if away else _our_fault(request, reference)
    # Whatever else is broken, there is an answer.
    except Exception:
        logger.exception("the page of an error failed too (reference %s)", reference)
        return _last_resort(request, 503 if away else 500, reference)


def login_locked(request: HttpRequest, credentials: Any, *args: Any) -> HttpResponse:
    """Answer a login that was refused because too many before it failed."""
    return problem(
        request,
        status=429,
        code="rate_limited",
        message=_("Too many failed sign-in attempts. Wait six minutes and try again."),
        retry_after_s=LOGIN_RETRY_AFTER_S,
    )


def _our_fault(request: HttpRequest, reference: str) -> HttpResponse:
    message = _("Something went wrong on our side. Try again in a moment.")
    if not wants_html(request):
        message += " " + _("Reference: %(reference)s") % {"reference": reference}
    return problem(
        request, status=500, code="error", message=message, page={"reference": reference}
    )


def _last_resort(request: HttpRequest, status: int, reference: str) -> HttpResponse:
    response: HttpResponse
    if wants_html(request):
        response = HttpResponse(
            _LAST_RESORT.format(status=status, reference=reference), status=status
        )
    else:
        message = f"Something went wrong on our side. Reference: {reference}"
        code = "error" if status == 500 else "unavailable"
        response = JsonResponse({"code": code, "message": message}, status=status)
    response["Cache-Control"] = "no-store"
    if status == 503:
        response["Retry-After"] = "1"
    return response
