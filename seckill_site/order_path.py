"""Middleware by path: what the order path does not need it does not pay for.

An order request and the receipt of a token carry their proof with them. They ask for no session, no
user, no messages and no CSRF cookie, and a JSON answer needs no Content-Security-Policy: of the
middleware there remain the headers and redirects of security, and the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from seckill_site.gate import Application, Environ

_PATH = re.compile(r"/vouchers/[0-9]+/orders/([0-9]+/)?")


class OrderPathHandler(WSGIHandler):
    """Django with the middleware of ``SECKILL_ORDER_MIDDLEWARE`` alone."""

    def load_middleware(self, is_async: bool = False) -> None:
        everything = settings.MIDDLEWARE
        settings.MIDDLEWARE = settings.SECKILL_ORDER_MIDDLEWARE
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = everything


def by_path(*, order_path: Application, others: Application) -> Application:
    """Return an application that sends programs on the order path one way, all else the other."""

    def wrapped(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        chosen = order_path if is_on_order_path(environ) else others
        return chosen(environ, start_response)

    return wrapped


def is_on_order_path(environ: Environ) -> bool:
    """Say whether a request is a program's order, or asks for a receipt by the token it holds."""
    match = _PATH.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or "text/html" in environ.get("HTTP_ACCEPT", "").lower():
        return False
    return match[1] is None or "HTTP_PURCHASE_TOKEN" in environ
