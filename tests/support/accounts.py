"""Helpers of the account tests: who has signed in, codes in messages, and where ``next`` leads."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin, urlsplit

from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.contrib.auth.models import User
from django.test import Client

PASSWORD = "lang genug 1234"

OUTSIDE = [
    "https://evil.example/",
    "http://evil.example/",
    "//evil.example/",
    "///evil.example/",
    "/\\evil.example/",
    "\\\\evil.example/",
    "https:///evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "http://[",
    " //evil.example/",
    "\t//evil.example/",
]
ODD = ["", "foo", "purchase", "live", "login", "?x", "#x", "/a\nb", "/\x00", "/%00", "/售罄"]


def signed_in_as(client: Client) -> str | None:
    user_id = client.session.get("_auth_user_id")
    return User.objects.get(pk=user_id).username if user_id else None


def code_in(text: object) -> str:
    found = re.search(r"\b[0-9]{6}\b", str(text))
    assert found
    return found[0]


def totp(secret: str) -> str:
    """Return the code that an app with this secret shows now."""
    return str(format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time())))))


def stays_inside(response: Any, path: str) -> bool:
    target = urljoin(f"http://testserver{path}", response["Location"])
    return urlsplit(target).netloc == "testserver" and urlsplit(target).scheme == "http"
