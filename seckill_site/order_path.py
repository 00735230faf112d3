"""The short way through Django: what the order path does not need it does not pay for.

An order request and the receipt of a token carry their proof with them. They ask for no session, no
user, no messages and no CSRF cookie, and a JSON answer needs no Content-Security-Policy: of the
middleware there remain the headers and redirects of security, and the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, get_script_name
from django.db import connection
from django.http import HttpRequest
from django.http.response import HttpResponse, HttpResponseBase
from django.urls import ResolverMatch, get_resolver, set_script_prefix
from django.utils import translation
from django.utils.cache import patch_vary_headers

from seckill_site.gate import Application, Environ
from seckill_site.responses import names_html

_PATH = re.compile(r"/vouchers/[0-9]+/orders/([0-9]+/)?")


class OrderPathHandler(WSGIHandler):
    """Django with the middleware of ``SECKILL_ORDER_MIDDLEWARE`` alone, for whole JSON answers.

    It looks for a view only in ``SECKILL_ORDER_URLCONF``; what is reversed may be anywhere. And it
    sends no signals of a request: what Django connects to them closes caches and old connections,
    and is done here where this thread has a connection at all.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        everything = settings.MIDDLEWARE
        settings.MIDDLEWARE = settings.SECKILL_ORDER_MIDDLEWARE
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = everything

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        match = get_resolver(settings.SECKILL_ORDER_URLCONF).resolve(request.path_info)
        request.resolver_match = match
        return match

    def __call__(  # type: ignore[override]  # any iterable of bytes will do for WSGI
        self, environ: Environ, start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        _tend_connection()
        set_script_prefix(get_script_name(environ))
        request = self.request_class(environ)
        response = self.get_response(request)
        assert isinstance(response, HttpResponse), "nothing is streamed here"
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        request.close()
        _tend_connection()
        return [response.content]


def _tend_connection() -> None:
    """Close the connection where it is broken or too old, as ``close_old_connections`` does."""
    if connection.connection is not None:
        connection.close_if_unusable_or_obsolete()


def speak_their_language(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Do what LocaleMiddleware does where no language stands in a path."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        language = translation.get_language_from_request(request)
        translation.activate(language)
        response = get_response(request)
        patch_vary_headers(response, ["Accept-Language"])
        response.headers.setdefault("Content-Language", language)
        return response

    return middleware


def by_path(*, order_path: Application, others: Application) -> Application:
    """Return an application that sends programs on the order path one way, all else the other."""

    def wrapped(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        chosen = order_path if is_on_order_path(environ) else others
        return chosen(environ, start_response)

    return wrapped


def is_on_order_path(environ: Environ) -> bool:
    """Say whether a request is a program's order, or asks for a receipt by the token it holds."""
    match = _PATH.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or names_html(environ):
        return False
    return match[1] is None or "HTTP_PURCHASE_TOKEN" in environ
