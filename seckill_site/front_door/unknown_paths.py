"""Paths that lead nowhere: anybody can make them up, so no thread of Django has to say so."""

from os.path import isfile

from django.conf import settings
from django.http import Http404
from django.urls import Resolver404, resolve
from django.utils.translation import gettext_noop

from seckill_site.front_door.requests import Environ
from seckill_site.web.request_rates import check_address

NOT_FOUND = gettext_noop("Page not found.")


async def unknown_path(environ: Environ) -> None:
    """Refuse a path at which Django has no page, no file and no redirect to either.

    :raises Http404: there is nothing.
    :raises RateLimited: too many requests came from this address.
    """
    path = environ["PATH_INFO"].encode("latin-1").decode(errors="replace")
    if _is_static(path) or _leads_on(path) or _leads_on(f"{path}/"):
        return
    check_address(environ)
    raise Http404(NOT_FOUND)


def _is_static(path: str) -> bool:
    """Return whether a path may be that of a static file, which WhiteNoise answers in a thread."""
    name = path.removeprefix(settings.STATIC_URL)
    return name != path and (settings.DEBUG or isfile(f"{settings.STATIC_ROOT}/{name}"))


def _leads_on(path: str) -> bool:
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
