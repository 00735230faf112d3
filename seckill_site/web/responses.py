"""Answers of the HTTP contract: a page if ``Accept`` names ``text/html``, else JSON.

The front door and the Django views render the same :class:`Answer`, so neither repeats the other's
rules.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers
from django.utils.http import escape_leading_slashes
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

PUBLIC_SECONDS = 1
YEAR_SECONDS = 365 * 24 * 60 * 60
UNAVAILABLE_RETRY_AFTER_S = 1
UNAVAILABLE_TEXT = gettext_noop(
    "We are very busy right now. Try again; you will not lose your place."
)
SIGN_INS_RETRY_AFTER_S = 2
SIGN_INS_TEXT = gettext_noop("Many people are signing in right now. Try again in a moment.")

Headers = tuple[tuple[str, str], ...]
View = Callable[..., HttpResponseBase]


class Answer(NamedTuple):
    """A status, a JSON text, the headers that depend on them, and a cookie to set, if any."""

    status: int
    content: str
    headers: Headers
    cookie: str = ""


def as_response(answer: Answer) -> HttpResponse:
    """Render an answer for Django, whose middleware adds the headers that every response has."""
    response = HttpResponse(
        answer.content,
        status=answer.status,
        content_type="application/json",
        headers=dict(answer.headers),
    )
    if answer.cookie:
        response.cookies.load(answer.cookie)
    return response


def problem_answer(
    *, status: int, code: str, text: str, language: str, retry_after_s: int | None = None
) -> Answer:
    """Return the JSON of :func:`problem` where there is no Django request."""
    with translation.override(language):
        content = json.dumps({"code": code, "message": _(text)})
    headers: Headers = (("Cache-Control", "no-store"),)
    if retry_after_s is not None:
        headers += (("Retry-After", str(retry_after_s)),)
    return Answer(status, content, headers)


def unavailable_answer(text: str = "", *, language: str) -> Answer:
    """Return the JSON of :func:`unavailable` where there is no Django request."""
    return problem_answer(
        status=503,
        code="unavailable",
        text=text or UNAVAILABLE_TEXT,
        language=language,
        retry_after_s=UNAVAILABLE_RETRY_AFTER_S,
    )


def absolute_url(path: str) -> str:
    """Return the absolute address of a path of this site, whatever host a request names."""
    return f"{settings.SECKILL_SITE_URL}{path}"


def wants_html(request: HttpRequest) -> bool:
    """Return whether the client named ``text/html`` in its ``Accept`` header."""
    return names_html(request.META)


def names_html(environ: Mapping[str, Any]) -> bool:
    """Return whether the ``Accept`` header of a WSGI environment names ``text/html``."""
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


def see_page(page: str, *ids: int | str) -> HttpResponse:
    """Answer 303: what was asked for is done, and this page shows it."""
    return HttpResponse(status=303, headers={"Location": reverse(page, args=ids)})


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


def as_shell(response: HttpResponse) -> HttpResponse:
    """Let any cache keep a page that is the same for everybody, and ask whether it is still new.

    The cookie may choose the language.
    """
    response["Cache-Control"] = "public, max-age=0, must-revalidate"
    patch_vary_headers(response, ["Accept", "Cookie"])
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
                return method_not_allowed(request, methods)
            return view(request, *args, **kwargs)

        checked.allowed_methods = methods  # type: ignore[attr-defined]
        return checked

    return decorate


def methods_of(view: View) -> tuple[str, ...]:
    """Return the methods that a view allows; Django's own views are pages and forms."""
    methods: tuple[str, ...] = getattr(view, "allowed_methods", ("GET", "HEAD", "POST"))
    return methods


def method_not_allowed(request: HttpRequest, methods: tuple[str, ...]) -> HttpResponse:
    """Answer 405, and name the methods that are allowed."""
    allowed = ", ".join(methods)
    message = _("This address only accepts %(methods)s.") % {"methods": allowed}
    response = problem(request, status=405, code="invalid", message=message)
    response["Allow"] = allowed
    return response


# --- The links of an error page: found without session or database -------------------------------


@dataclass(frozen=True)
class WaysOut:
    """Paths of this site, or empty; ``sale_id`` and ``order_id`` are those in the address."""

    here: str
    back_url: str
    again_url: str
    again_at: dt.datetime | None
    sale_id: int | None
    order_id: int | None
    signed_in: bool
    in_admin: bool


def ways_out(request: HttpRequest, *, retry_after_s: int | None, now: dt.datetime) -> WaysOut:
    """Return the links to offer on the error page of this request."""
    # A path that starts with two slashes would lead to another site.
    here, before = escape_leading_slashes(request.get_full_path()), _page_before(request)
    is_page = request.method in ("GET", "HEAD")
    match = request.resolver_match
    ids = match.kwargs if match else {}
    return WaysOut(
        here=here if is_page else before,
        back_url="" if before == here else before,
        # A link never repeats a POST; it leads to the page with the form.
        again_url=here if is_page else before,
        again_at=None if retry_after_s is None else now + dt.timedelta(seconds=retry_after_s),
        sale_id=ids.get("sale_id"),
        order_id=ids.get("order_id"),
        signed_in=seems_signed_in(request),
        in_admin=request.path.startswith(reverse("admin:index")),
    )


def seems_signed_in(request: HttpRequest) -> bool:
    """Return whether there is a session cookie: enough to choose words, not to authorize."""
    return settings.SESSION_COOKIE_NAME in request.COOKIES


def _page_before(request: HttpRequest) -> str:
    """Return the path of the referring page of this site, or nothing."""
    try:
        parts, host = urlsplit(request.headers.get("Referer", "")), request.get_host()
    except (ValueError, DisallowedHost):
        return ""
    if not parts.path or parts.netloc != host:
        return ""
    return escape_leading_slashes(parts.path) + (f"?{parts.query}" if parts.query else "")
