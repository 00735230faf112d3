"""The demo: accounts with generated passwords, and sales."""

import datetime as dt
import secrets
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from backoffice.demo.sales import make_sales

ADMIN = "admin"
BUYERS = ("alice", "bob")


@dataclass(frozen=True)
class Demo:
    """What was made: passwords by user name, and sales by title."""

    passwords: dict[str, str]
    sale_ids: dict[str, int]


def make_demo(*, now: dt.datetime) -> Demo | None:
    """Make accounts and sales, once: where the admin exists, nothing is made."""
    if User.objects.filter(username=ADMIN).exists():
        return None
    passwords = {name: secrets.token_urlsafe(9) for name in (ADMIN, *BUYERS)}
    with transaction.atomic():
        User.objects.create_superuser(ADMIN, password=passwords[ADMIN])
        for name in BUYERS:
            User.objects.create_user(name, password=passwords[name])
        return Demo(passwords, make_sales(now=now))


def demo_accounts() -> list[str]:
    """Return the names of the demo's accounts that may sign in, the admin first."""
    users = User.objects.filter(username__in=(ADMIN, *BUYERS), is_active=True)
    return sorted(users.values_list("username", flat=True))
