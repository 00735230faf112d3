"""The demo: accounts with generated passwords, and sales."""

import datetime as dt
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from backoffice.demo.sales import make_sales
from seckill_site.face.values import variable_of
from seckill_site.models import ONLY_ROW, ShopSettings

FACE = Path(__file__).with_name("face.toml")
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


def set_demo_face() -> None:
    """Give a shop without settings those of the demo; what the environment names is its own."""
    face = tomllib.loads(FACE.read_text("utf-8"))
    given = {name for name in face if getattr(settings, variable_of(name.removesuffix("_en")))}
    values = {name: text for name, text in face.items() if name not in given}
    defaults = {"revision": "demo", "values": values}
    ShopSettings.objects.get_or_create(pk=ONLY_ROW, defaults=defaults)


def demo_accounts() -> list[str]:
    """Return the names of the demo's accounts that may sign in, the admin first."""
    users = User.objects.filter(username__in=(ADMIN, *BUYERS), is_active=True)
    return sorted(users.values_list("username", flat=True))
