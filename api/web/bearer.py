"""Shared by every endpoint under ``/api/v1/``: the bearer token, its scope, JSON in any case."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from api.models import ApiToken, Scope
from api.tokens import BadToken, MissingPermission, MissingScope, check_scope, find_token, note_use
from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses
from orders.web.request_parsing import InvalidRequest
from seckill_site.clocks.database import database_now
from seckill_site.web.request_rates import (
    RATE_LIMITED_TEXT,
    RateLimited,
    check_account,
    count_limited,
)

CACHE_AWAY_S = 5
"""Seconds before a retry if wrong codes cannot be counted."""

ApiView = Callable[..., HttpResponseBase]

_BEARER = re.compile(r"Bearer +([!-~]{1,200})", re.ASCII | re.IGNORECASE)
_TOKENS = ("token", "access_token", "api_key", "key", "authorization")


def refusal(
    status: int,
    code: str,
    message: str,
    /,
    *,
    headers: dict[str, str] | None = None,
    **details: Any,
) -> HttpResponse:
    """Answer a refusal, always as JSON."""
    content = {"code": code, "message": message, **details}
    return JsonResponse(content, status=status, headers=headers)


def api_view(*methods: str, scope: Scope) -> Callable[[ApiView], ApiView]:
    """Call the view with the token of the request, if that has the scope."""

    def decorate(view: ApiView) -> ApiView:
        @csrf_exempt  # no cookie counts here
        @wraps(view)
        def wrapped(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            response = _answer(view, methods, scope, request, kwargs)
            response.headers["Cache-Control"] = "private, no-store"
            return response

        wrapped.allowed_methods = methods  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _answer(
    view: ApiView,
    methods: tuple[str, ...],
    scope: Scope,
    request: HttpRequest,
    kwargs: dict[str, Any],
) -> HttpResponseBase:
    if request.method not in methods:
        allowed = ", ".join(methods)
        message = _("This address only accepts %(methods)s.") % {"methods": allowed}
        return refusal(405, "invalid", message, headers={"Allow": allowed})
    try:
        return view(request, _token_of(request, scope), **kwargs)
    except InvalidRequest as error:
        return refusal(error.status, "invalid", _(error.text))
    except (BadToken, MissingScope, MissingPermission) as error:
        return _denied(request, error)
    except (RateLimited, TooManyGuesses, GuessesUnknown) as error:
        return _wait(error)


def _denied(
    request: HttpRequest, error: BadToken | MissingScope | MissingPermission
) -> HttpResponse:
    if isinstance(error, MissingPermission):
        message = _("The token's member of staff does not have permission to do this.")
        return refusal(403, "no_permission", message)
    if isinstance(error, BadToken):
        message = _("Send a valid token as Authorization: Bearer.")
        why = ', error="invalid_token"' if "Authorization" in request.headers else ""
        headers = {"WWW-Authenticate": f'Bearer realm="api"{why}'}
        return refusal(401, "login_required", message, headers=headers)
    scope = error.scope.value
    message = _("This token does not have the scope %(scope)s.") % {"scope": scope}
    headers = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'}
    return refusal(403, "missing_scope", message, headers=headers, scope=scope)


def _wait(error: RateLimited | TooManyGuesses | GuessesUnknown) -> HttpResponse:
    if isinstance(error, GuessesUnknown):
        message = _("Codes cannot be checked at the moment. Try again in a few seconds.")
        headers = {"Retry-After": str(CACHE_AWAY_S)}
        return refusal(503, "unavailable", message, headers=headers)
    message = _("Too many wrong codes. Wait a moment and try again.")
    if isinstance(error, RateLimited):
        count_limited(error.limit)
        message = _(RATE_LIMITED_TEXT)
    headers = {"Retry-After": str(error.retry_after_s)}
    return refusal(429, "rate_limited", message, headers=headers)


def _token_of(request: HttpRequest, scope: Scope) -> ApiToken:
    """Return the token of a request, after checking and counting it.

    :raises InvalidRequest: a token is in the address, where logs and proxies keep it.
    :raises BadToken: there is no valid one.
    :raises RateLimited: its owner sends too many requests.
    :raises MissingScope: it lacks the scope.
    :raises MissingPermission: its owner lacks the permission.
    """
    if any(name.lower() in _TOKENS for name in request.GET):
        raise InvalidRequest(
            400,
            _("Never put a token into an address, where logs keep it. Revoke it and use a header."),
        )
    match = _BEARER.fullmatch(request.headers.get("Authorization", ""))
    if match is None:
        raise BadToken
    now = database_now()
    token = find_token(text=match[1], now=now)
    check_account(request.META, token.owner_id)
    check_scope(token, scope)
    note_use(token, now=now)
    return token
