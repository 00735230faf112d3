"""Answers of the HTTP contract: a page where ``Accept`` names ``text/html``, else JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from seckill_site.web.error_links import ways_out

PUBLIC_SECONDS = 1
YEAR_SECONDS = 365 * 24 * 60 * 60
UNAVAILABLE_RETRY_AFTER_S = 1
UNAVAILABLE_TEXT = gettext_noop(
    "We are very busy right now. Try again; you will not lose your place."
)

View = Callable[..., HttpResponseBase]


def wants_html(request: HttpRequest) -> bool:
    """Return whether the client named ``text/html`` in its ``Accept`` header."""
    return names_html(request.META)


def names_html(environ: Mapping[str, Any]) -> bool:
    """Return the same for a WSGI environment."""
    return "text/html" in environ.get("HTTP_ACCEPT", "").lower()


def problem(
    request: HttpRequest,
    *,
    status: int,
    code: str,
    message: str,
    retry_after_s: int | None = None,
    page: Mapping[str, Any] = MappingProxyType({}),
    **details: Any,
) -> HttpResponse:
    """Answer a refusal or an error: ``{"code", "message", …}``, or a small page with the same.

    ``page`` goes into the context of the page only.
    """
    response: HttpResponse
    if wants_html(request):
        context = {
            "status": status,
            "code": code,
            "message": message,
            "retry_after_s": retry_after_s,
            "ways": ways_out(request, retry_after_s=retry_after_s, now=timezone.now()),
            **details,
            **page,
        }
        response = HttpResponse(render_to_string("error.html", context), status=status)
    else:
        response = JsonResponse({"code": code, "message": message, **details}, status=status)
    if retry_after_s is not None:
        response["Retry-After"] = str(retry_after_s)
    response["Cache-Control"] = "no-store"
    return response


def unavailable(request: HttpRequest, message: str = "") -> HttpResponse:
    """Answer 503: a part is missing, and the same request may be sent again."""
    return problem(
        request,
        status=503,
        code="unavailable",
        message=message or _(UNAVAILABLE_TEXT),
        retry_after_s=UNAVAILABLE_RETRY_AFTER_S,
    )


def for_everybody(response: HttpResponse, *, seconds: int = PUBLIC_SECONDS) -> HttpResponse:
    """Let any cache keep a public answer for a short time."""
    response["Cache-Control"] = f"public, max-age={seconds}"
    patch_vary_headers(response, ["Accept"])  # the same address answers HTML and JSON
    return response


def for_ever(response: HttpResponse) -> HttpResponse:
    """Let any cache keep an immutable answer."""
    response["Cache-Control"] = f"public, max-age={YEAR_SECONDS}, immutable"
    return response


def for_owner(response: HttpResponse) -> HttpResponse:
    """Let no shared cache keep a personal answer."""
    response["Cache-Control"] = "private, no-store"
    return response


def for_visitors(response: HttpResponse, request: HttpRequest) -> HttpResponse:
    """Let caches keep the page of a visitor, but not of a signed-in user."""
    return for_everybody(response) if request.user.pk is None else for_owner(response)


def allow(*methods: str) -> Callable[[View], View]:
    """Answer other methods with the contract's 405."""

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method not in methods:
                allowed = ", ".join(methods)
                message = _("This address only accepts %(methods)s.") % {"methods": allowed}
                response = problem(request, status=405, code="invalid", message=message)
                response["Allow"] = allowed
                return response
            return view(request, *args, **kwargs)

        return checked

    return decorate
