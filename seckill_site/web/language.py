"""The choice of the language."""

from django.conf import settings
from django.dispatch import Signal
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect

from seckill_site.web.redirects import next_url
from seckill_site.web.responses import YEAR_SECONDS, allow, seems_signed_in

language_chosen = Signal()
"""Sent with ``request`` and ``language`` if the reader seems to be signed in."""


@allow("GET", "HEAD")
def set_language(request: HttpRequest, code: str) -> HttpResponseBase:
    """Remember the language in a cookie and go back to the page."""
    if code not in dict(settings.LANGUAGES):
        raise Http404
    response = HttpResponseRedirect(next_url(request))
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        code,
        max_age=YEAR_SECONDS,
        samesite="Lax",
        secure=settings.HTTPS_ONLY,
    )
    if seems_signed_in(request):
        language_chosen.send(sender=None, request=request, language=code)
    return response
