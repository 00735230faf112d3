"""Error answers of the site: each names what is wrong and what to do."""

from __future__ import annotations

import sys
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from seckill_site.responses import problem, unavailable

LOGIN_RETRY_AFTER_S = 360


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(
        request, status=400, code="invalid", message=_("The request could not be understood.")
    )


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(
        request, status=403, code="bad_token", message=_("You may not do this. Sign in again.")
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return problem(
        request,
        status=403,
        code="bad_token",
        message=_("The page was open for too long. Load it again and repeat what you did."),
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem(request, status=404, code="not_found", message=_("There is nothing here."))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer what nobody expected; a database that is away is expected, and a 503."""
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return unavailable(request)
    return problem(
        request,
        status=500,
        code="error",
        message=_("Something went wrong on our side. Try again in a moment."),
    )


def login_locked(request: HttpRequest, credentials: Any, *args: Any) -> HttpResponse:
    """Answer a login that was refused because too many before it failed."""
    return problem(
        request,
        status=429,
        code="rate_limited",
        message=_("Too many failed logins. Wait six minutes and try again."),
        retry_after_s=LOGIN_RETRY_AFTER_S,
    )
