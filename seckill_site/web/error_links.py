"""The links of an error page, found without session or database."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import escape_leading_slashes


@dataclass(frozen=True)
class WaysOut:
    """Paths of this site, or empty; ``sale_id`` is the one in the address."""

    here: str
    back_url: str
    again_url: str
    again_at: dt.datetime | None
    sale_id: int | None
    signed_in: bool
    in_admin: bool


def ways_out(request: HttpRequest, *, retry_after_s: int | None, now: dt.datetime) -> WaysOut:
    """Return the ways out of an error that this request met."""
    # A path that begins with two slashes would lead to another site.
    here, before = escape_leading_slashes(request.get_full_path()), _page_before(request)
    is_page = request.method in ("GET", "HEAD")
    match = request.resolver_match
    return WaysOut(
        here=here if is_page else before,
        back_url="" if before == here else before,
        # A link never repeats a POST; it leads to the page with the form.
        again_url=here if is_page else before,
        again_at=None if retry_after_s is None else now + dt.timedelta(seconds=retry_after_s),
        sale_id=match.kwargs.get("sale_id") if match else None,
        signed_in=seems_signed_in(request),
        in_admin=request.path.startswith(reverse("admin:index")),
    )


def seems_signed_in(request: HttpRequest) -> bool:
    """Return whether there is a session cookie: enough to choose words, not to authorize."""
    return settings.SESSION_COOKIE_NAME in request.COOKIES


def _page_before(request: HttpRequest) -> str:
    """Return the path of the referring page of this site, or nothing."""
    try:
        parts, host = urlsplit(request.headers.get("Referer", "")), request.get_host()
    except (ValueError, DisallowedHost):
        return ""
    if not parts.path or parts.netloc != host:
        return ""
    return escape_leading_slashes(parts.path) + (f"?{parts.query}" if parts.query else "")
