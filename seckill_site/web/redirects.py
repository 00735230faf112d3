"""Redirects to where a request asks for, if that is on this site."""

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme


def is_same_site(url: str | None, request: HttpRequest) -> bool:
    """Return whether this address belongs to the site that was asked."""
    return url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )


def next_url(request: HttpRequest) -> str:
    """Return the ``next`` of the request if it is on this site, else the front page."""
    target = request.GET.get("next", "")
    return target if is_same_site(target, request) else resolve_url(settings.LOGIN_REDIRECT_URL)
