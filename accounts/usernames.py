"""Usernames: one spelling of each, whatever the case of its letters."""

import re
from unicodedata import category, normalize

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q
from django.utils.crypto import get_random_string

MADE_UP_NAME = "^user-[a-z0-9]{12}$"


def made_up_name() -> str:
    """Return a name that says nothing of its owner."""
    return "user-" + get_random_string(12).lower()


def as_username(text: str) -> str:
    """Return the spelling in which a username is stored and looked up."""
    seen = "".join(it for it in text if category(it) != "Cf")  # not what only a paste brings
    return normalize("NFKC", seen.strip())


def find_by_username(username: str) -> User | None:
    """Return the account with this name in any case, unless there are several."""
    # A collation may find other letters as well.
    users = User.objects.filter(username__iexact=username)
    same = [it for it in users if it.username.lower() == username.lower()]
    return same[0] if len(same) == 1 else None


def username_is_taken(username: str) -> bool:
    """Return whether an account has this name in any case."""
    same = Q(username__iexact=username)
    if connection.vendor == "sqlite" and not username.isascii():
        # LIKE and the index know the case of ASCII letters only; REGEXP is Python's.
        same |= Q(username__iregex=rf"^{re.escape(username)}$")
    return User.objects.filter(same).exists()
