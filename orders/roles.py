"""Staff roles: four groups in every installation, and their permissions (``roles.toml``)."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps as installed
from django.apps.registry import Apps
from django.db import models, transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

SHOP_APPS = ("vouchers", "orders", "locks")

_WORK = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PREPARE, RUN = tuple(_WORK["prepare"]), tuple(_WORK["run"])


class Role(models.TextChoices):
    """A role of staff; the value is the name of its group."""

    CASHIER = "Cashier", _("Cashier")
    SHOP_STAFF = "Shop staff", _("Shop staff")
    OPERATOR = "Operator", _("Operator")
    READ_ONLY = "Read-only", _("Read-only")


NAMED = {Role.CASHIER: _WORK["redeem"], Role.SHOP_STAFF: PREPARE, Role.OPERATOR: PREPARE + RUN}
"""The permissions of the roles; one that only reads has all permissions to view."""


@dataclass(frozen=True)
class RoleChange:
    """The permissions added to and removed from a role, as ``app.codename``."""

    role: Role
    added: list[str]
    removed: list[str]


def make_roles(*, reset: bool = False, apps: Apps = installed) -> list[RoleChange]:
    """Create missing groups, add missing permissions, and return what changed.

    Permissions that were added by hand stay, unless ``reset``. A migration passes its own ``apps``.
    """
    with transaction.atomic():
        return [change for role in Role if (change := _make(role, apps, reset=reset))]


def _make(role: Role, apps: Apps, *, reset: bool) -> RoleChange | None:
    group, is_new = apps.get_model("auth", "Group").objects.get_or_create(name=role.value)
    has, wanted = set(group.permissions.all()), set(_permissions(role, apps))
    added, removed = wanted - has, has - wanted if reset else set()
    group.permissions.add(*added)
    group.permissions.remove(*removed)
    if is_new or added or removed:
        return RoleChange(role, _names(added), _names(removed))
    return None


def _permissions(role: Role, apps: Apps) -> Iterable[Any]:
    """Return the permissions of a role, without those that a later migration creates."""
    every = apps.get_model("auth", "Permission").objects.select_related("content_type")
    if role == Role.READ_ONLY:
        return every.filter(content_type__app_label__in=SHOP_APPS, codename__startswith="view_")
    named = Q()
    for name in NAMED[role]:
        app_label, codename = name.split(".")
        named |= Q(content_type__app_label=app_label, codename=codename)
    return every.filter(named)


def _names(permissions: Iterable[Any]) -> list[str]:
    return sorted(f"{it.content_type.app_label}.{it.codename}" for it in permissions)
