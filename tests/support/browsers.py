"""Browsers without a window: Django's test client, in which somebody is signed in."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

HTML = {"Accept": "text/html", "Accept-Language": "en"}


def browser_of(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def session_cookie(user: User) -> str:
    """Return the cookie of a new session, as a request names it."""
    key = browser_of(user).cookies[settings.SESSION_COOKIE_NAME].value
    return f"{settings.SESSION_COOKIE_NAME}={key}"
