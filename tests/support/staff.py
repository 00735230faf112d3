"""Members of staff, and what the back office shows them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client

from tests.support.browsers import HTML, browser_of


def staff_with(
    *codenames: str, name: str = "clerk", language: str = "en", is_owner: bool = False
) -> Client:
    """Return the browser of a member of staff with exactly these permissions."""
    user = User.objects.create(username=name, password="!", is_staff=True, is_superuser=is_owner)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return browser_of(user, headers={**HTML, "Accept-Language": language})


def said(response: Any) -> list[str]:
    """Return the messages of a response, each after its level."""
    return [f"{it.level_tag}: {it}" for it in get_messages(response.wsgi_request)]


def words(page: str) -> str:
    """Return the text of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
