"""The WSGI application, for any WSGI server."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.utils.module_loading import import_string
from granian.utils.proxies import wrap_wsgi_with_proxy_headers

from seckill_site.web.fast_path import Application, with_fast_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")


def with_readable_content_type(application: Application) -> Application:
    """Treat a content type with extended parameters (``name*=charset''value``) as unknown.

    Django decodes them before any view, and raises on an unknown charset. No browser and no client
    library sends them.
    """

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if "*" in environ.get("CONTENT_TYPE", ""):
            environ["CONTENT_TYPE"] = "application/octet-stream"
        return application(environ, start_response)

    return wrapped


application = with_readable_content_type(
    with_fast_path(
        get_wsgi_application(),
        responders=[import_string(name) for name in settings.SECKILL_FAST_PATH],
        https_only=settings.HTTPS_ONLY,
    )
)

if settings.SECKILL_TRUSTED_PROXIES:
    # Logins are throttled by address; behind a proxy, everybody would share one.
    application = wrap_wsgi_with_proxy_headers(
        application, trusted_hosts=settings.SECKILL_TRUSTED_PROXIES
    )
