"""The fast path in front of Django: requests of programs that need no middleware and no session.

An answer from here costs about a tenth of the smallest Django view. ``SECKILL_FAST_PATH`` names the
functions of the apps that are tried in turn.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from http.client import responses
from typing import Any

from django.conf import settings
from django.http import HttpRequest, parse_cookie
from django.utils import translation

from seckill_site.web.responses import Answer

logger = logging.getLogger(__name__)

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Responder = Callable[[Environ], Answer | None]
"""A function that answers a request, or returns None and leaves it, body included, to Django."""

_STATUS_LINES = {number: f"{number} {phrase}" for number, phrase in responses.items()}
_COMMON_HEADERS = (
    ("Content-Type", "application/json"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


def with_fast_path(
    application: Application, *, responders: Sequence[Responder], https_only: bool
) -> Application:
    """Try the responders before the application; never over plain HTTP if HTTPS is required."""

    def wrapped(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not https_only or environ.get("HTTP_X_FORWARDED_PROTO") == "https":
            for respond in responders:
                answer = _try(respond, environ)
                if answer is not None:
                    body = answer.content.encode()
                    length = ("Content-Length", str(len(body)))
                    headers = [*_COMMON_HEADERS, *answer.headers, length]
                    start_response(_STATUS_LINES[answer.status], headers)
                    return [body]
        return application(environ, start_response)

    return wrapped


def _try(respond: Responder, environ: Environ) -> Answer | None:
    try:
        return respond(environ)
    except Exception:  # Django has an error page, with a reference, for whatever it is
        logger.exception("the fast path failed at %s", environ.get("PATH_INFO"))
        return None


def request_path(environ: Environ) -> str:
    """Return the path of a request as its client knows it."""
    return f"{environ.get('SCRIPT_NAME', '')}{environ['PATH_INFO']}"


def request_language(environ: Environ) -> str:
    """Return the language that Django's ``LocaleMiddleware`` would choose for a request."""
    cookies = environ.get("HTTP_COOKIE")
    chosen = parse_cookie(cookies).get(settings.LANGUAGE_COOKIE_NAME, "") if cookies else ""
    return _language(chosen[:16], environ.get("HTTP_ACCEPT_LANGUAGE", "")[:128])


@lru_cache(maxsize=512)
def _language(chosen: str, accepted: str) -> str:
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = chosen
    return translation.get_language_from_request(request)
