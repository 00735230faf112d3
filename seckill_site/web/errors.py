"""Error answers of the site: each names what is wrong and what to do."""

import logging
import secrets
import sys
from pathlib import Path

from django.core.exceptions import RequestDataTooBig
from django.db import DataError, IntegrityError
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.html import escape
from django.utils.translation import gettext as _

from seckill_site.face.site_face import both_faces
from seckill_site.web.request_rates import RATE_LIMITED_TEXT
from seckill_site.web.responses import (
    method_not_allowed,
    methods_of,
    problem,
    seems_signed_in,
    unavailable,
    wants_html,
)

logger = logging.getLogger(__name__)

LOGIN_RETRY_AFTER_S = 360
TOO_MANY_RETRY_AFTER_S = 60

_LAST_RESORT = Path(__file__).with_name("last_resort.html").read_text(encoding="utf-8")
"""The page for when even templates or translations are broken."""


class WithReference(logging.Filter):
    """A filter that adds the reference to the line that Django logs for a failed request."""

    def filter(self, record: logging.LogRecord) -> bool:
        reference = getattr(getattr(record, "request", None), "reference", None)
        # If Django is set up twice, as under manage.py runserver, this filter exists twice.
        if reference and reference not in record.msg:
            record.msg = f"{record.msg} (reference {reference})"
        return True


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        return problem(request, status=413, code="invalid", message=_("The request is too large."))
    return problem(
        request, status=400, code="invalid", message=_("The request could not be understood.")
    )


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Tell a visitor to sign in, and an account that it lacks the permission."""
    if seems_signed_in(request):
        message = _("Your account does not have permission to do this.")
    else:
        message = _("You do not have permission to do this. Sign in again.")
    return problem(request, status=403, code="bad_token", message=message, page={"denied": True})


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without its token; a method that the view does not allow is 405 first."""
    methods = methods_of(request.resolver_match.func) if request.resolver_match else ("POST",)
    if request.method not in methods:
        return method_not_allowed(request, methods)
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
    """Answer an unexpected error with 500, and a database that is unwell with 503.

    A missing table and a missing privilege count as well: an order that asks again loses nothing.
    """
    error = sys.exc_info()[1]
    away = isinstance(error, DatabaseError) and not isinstance(error, DataError | IntegrityError)
    digits = secrets.token_hex(4).upper()
    # The page shows this number to a buyer, and staff finds it in the log.
    reference = request.reference = f"{digits[:4]}-{digits[4:]}"  # type: ignore[attr-defined]
    try:
        return unavailable(request) if away else _our_fault(request, reference)
    except Exception:  # whatever else is broken, there is an answer
        logger.exception("the page of an error failed too (reference %s)", reference)
        return _last_resort(request, 503 if away else 500, reference)


def login_locked(request: HttpRequest) -> HttpResponse:
    """Answer a login that was refused after too many failures."""
    return too_many_requests(
        request,
        message=_("Too many failed sign-in attempts. Wait six minutes and try again."),
        retry_after_s=LOGIN_RETRY_AFTER_S,
    )


def too_many_requests(
    request: HttpRequest, *, message: str = "", retry_after_s: int = TOO_MANY_RETRY_AFTER_S
) -> HttpResponse:
    """Answer that a client, or everybody together, asks for this too often."""
    return problem(
        request,
        status=429,
        code="rate_limited",
        message=message or _(RATE_LIMITED_TEXT),
        retry_after_s=retry_after_s,
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
        face, _english = both_faces()
        response = HttpResponse(
            _LAST_RESORT.format(
                status=status,
                reference=reference,
                name=escape(face.name),
                contact=escape(face.contact),
            ),
            status=status,
        )
    else:
        message = f"Something went wrong on our side. Reference: {reference}"
        code = "error" if status == 500 else "unavailable"
        response = JsonResponse({"code": code, "message": message}, status=status)
    response["Cache-Control"] = "no-store"
    if status == 503:
        response["Retry-After"] = "1"
    return response
