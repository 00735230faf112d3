"""The WSGI application, for any WSGI server."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from granian.utils.proxies import wrap_wsgi_with_proxy_headers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

application = get_wsgi_application()

if settings.SECKILL_TRUSTED_PROXIES:
    # Logins are throttled by address, which behind a proxy would be everybody's.
    application = wrap_wsgi_with_proxy_headers(
        application, trusted_hosts=settings.SECKILL_TRUSTED_PROXIES
    )
