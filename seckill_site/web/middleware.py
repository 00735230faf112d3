"""Middleware in front of everything that answers, static files included."""

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.utils import translation

from seckill_site.broker.pace import note_life
from seckill_site.front_door.requests import LONGEST_BODY_BYTES, declared_bytes, request_language
from seckill_site.log_context import note_request
from seckill_site.web.responses import method_not_allowed

_DEVICES = (
    "accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "magnetometer",
    "microphone", "midi", "payment", "usb",
)  # fmt: skip


def permissions_policy(*allowed: str) -> str:
    """Return the header that forbids all devices but these, which the page itself may use."""
    return ", ".join(f"{name}=({'self' if name in allowed else ''})" for name in _DEVICES)


PERMISSIONS_POLICY = permissions_policy()
"""No page uses any of these, so no script on a page may. The counter's page allows the camera."""


def site_guard(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Refuse foreign hosts, endless bodies and methods in small letters; forbid devices.

    The language is read once, so that Django and the front door choose the same.
    """

    def guarded(request: HttpRequest) -> HttpResponse:
        note_request(request.META)
        language = request_language(request.META)
        request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = language
        # Django takes "post" for POST. Methods are case-sensitive, and no other server does.
        if request.META["REQUEST_METHOD"] != request.method:
            with translation.override(language):
                response = method_not_allowed(request, ("GET", "HEAD", "POST"))
        else:
            try:
                request.get_host()
                # Without the front door, a thread would wait for this body for ever.
                if declared_bytes(request.META) > LONGEST_BODY_BYTES:
                    raise RequestDataTooBig("the body is declared too long")
            except (DisallowedHost, RequestDataTooBig):
                # The error page comes before the middleware that chooses the language.
                translation.activate(language)
                raise
            if request.method not in ("GET", "HEAD"):
                note_life()
            response = get_response(request)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        note_request(None)
        return response

    return guarded
