"""The way back from the pages of accounts: to where a person came from, with a word there."""

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.http import urlencode
from django.utils.module_loading import import_string
from django.utils.translation import gettext

from seckill_site.web.redirects import is_same_site

PAGES = "/accounts/"
WAY_BACK = "way_back"
"""The cookie with the page that was left for these; a session would be a row for each visitor."""

TOLD = "told"
"""The cookie with what happened, for the script of a page that is the same for everybody."""


def way_back(request: HttpRequest) -> str:
    """Return the page of this site that the person came from, or nothing."""
    target = request.GET.get("next") or unquote(request.COOKIES.get(WAY_BACK, ""))
    return target if is_same_site(target, request) else ""


def with_way_back(url: str, request: HttpRequest) -> str:
    """Return an address that knows the way back: a mail may be opened in another browser."""
    target = way_back(request)
    return f"{url}?{urlencode({'next': target})}" if target else url


class WayBackMiddleware:
    """Keeps the way back, says that a session has ended, and brings messages to shared pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if _is_login(request.path):
            _say_ended(request)
        response = self._get_response(request)
        to = urlsplit(response.headers.get("Location", ""))
        if to.query and _is_login(to.path):
            _say_ended(request)
        if request.path.startswith(PAGES):
            self._keep_way_back(request, response, to.path)
        return response

    def _keep_way_back(self, request: HttpRequest, response: HttpResponse, path: str) -> None:
        cookie: dict[str, object] = {"secure": settings.HTTPS_ONLY, "samesite": "Lax"}
        if path and not path.startswith(PAGES):
            response.delete_cookie(WAY_BACK, path=PAGES)
            environ = {"PATH_INFO": path, "HTTP_ACCEPT": "text/html"}
            is_shared = import_string(settings.SECKILL_SHARED_PAGES)(environ)
            if (is_shared or path.endswith("/draw/")) and (told := _take_messages(request)):
                response.set_cookie(TOLD, told, max_age=60, **cookie)  # type: ignore[arg-type]
        elif request.method == "GET" and (target := _place_left(request)):
            cookie |= {"path": PAGES, "max_age": 1800, "httponly": True}
            response.set_cookie(WAY_BACK, quote(target), **cookie)  # type: ignore[arg-type]


def _is_login(path: str) -> bool:
    return path.startswith(PAGES) and path == resolve_url(settings.LOGIN_URL)


def _place_left(request: HttpRequest) -> str:
    """Return the page that was just left for these; they lead to one another by themselves."""
    target = way_back(request) if "next" in request.GET else ""
    return "" if target.startswith(PAGES) else target


def _take_messages(request: HttpRequest) -> str:
    """Return the messages as a cookie: nobody's may be in a page that everybody gets."""
    texts = [str(it) for it in messages.get_messages(request)]
    return base64.b64encode(json.dumps(texts).encode()).decode().rstrip("=") if texts else ""


def _say_ended(request: HttpRequest) -> None:
    """Say why somebody has to sign in whose browser still knows a session."""
    was_there = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if was_there and request.user.pk is None and request.session.session_key is None:
        text = gettext("Your session has ended. Sign in again.")
        if request.method == "POST":
            text = gettext("Your session has ended. Sign in, then press the button once more.")
        messages.info(request, text)
