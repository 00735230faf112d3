"""The ASGI application, for any ASGI server: the front door, and Django behind it."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

from seckill_site.wsgi import django  # first, because it sets Django up  # isort: skip

from django.conf import settings
from django.utils.module_loading import import_string
from granian.utils.proxies import wrap_asgi_with_proxy_headers

from seckill_site.front_door.application import FrontDoor
from seckill_site.log_context import with_peer

application = FrontDoor(
    django,
    responders=[import_string(name) for name in settings.SECKILL_FRONT_DOOR],
    is_shared=import_string(settings.SECKILL_SHARED_PAGES),
    at_stop=[import_string(name) for name in settings.SECKILL_AT_STOP],
)

if settings.SECKILL_TRUSTED_PROXIES:
    application = with_peer(
        wrap_asgi_with_proxy_headers(application, trusted_hosts=settings.SECKILL_TRUSTED_PROXIES)
    )
