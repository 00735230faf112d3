"""The WSGI application, for any WSGI server: Django alone, complete, slower than the front door."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from granian.utils.proxies import wrap_wsgi_with_proxy_headers

from seckill_site.front_door.django_threads import WsgiApplication
from seckill_site.log_context import with_peer

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")


def with_readable_content_type(application: WsgiApplication) -> WsgiApplication:
    """Treat a content type with extended parameters (``name*=charset''value``) as unknown.

    Django decodes them before any view, and raises on an unknown charset. No browser and no client
    library sends them.
    """

    def wrapped(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if "*" in environ.get("CONTENT_TYPE", ""):
            environ["CONTENT_TYPE"] = "application/octet-stream"
        return application(environ, start_response)

    return wrapped


_database = settings.DATABASES["default"]["OPTIONS"]
if "connect_timeout" in _database:
    _database["connect_timeout"] = 1  # a visitor does not wait for a sick server, as a worker may

django = with_readable_content_type(get_wsgi_application())
"""Django without the handling of proxies, which the front door does itself."""

application = django
if settings.SECKILL_TRUSTED_PROXIES:
    # Logins are throttled by address; behind a proxy, everybody would share one.
    application = with_peer(
        wrap_wsgi_with_proxy_headers(application, trusted_hosts=settings.SECKILL_TRUSTED_PROXIES)
    )
