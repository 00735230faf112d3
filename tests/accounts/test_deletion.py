"""What the migration makes of the log's entries about accounts that were deleted long ago."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType

from accounts.models import Invitation

migration = import_module("accounts.migrations.0005_forget_in_log")

pytestmark = [pytest.mark.django_db, pytest.mark.quick]


def log(by: User, row: User | Invitation | Group, *, text: str) -> None:
    kind = ContentType.objects.get_for_model(row)
    LogEntry.objects.create(
        user=by, content_type=kind, object_id=str(row.pk), object_repr=text, action_flag=ADDITION
    )


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_migration_forgets_deleted_accounts_in_the_log(monkeypatch, most: int) -> None:
    monkeypatch.setattr(migration, "AT_ONCE", most)
    ada, bob, eve = (User.objects.create_user(it) for it in ("ada", "bob", "eve"))
    role = Group.objects.create(name="Clerk")
    left = Invitation.objects.create(email="bob@example.com", role=role, invited_by=bob)
    gone = Invitation.objects.create(email="ada@example.com", role=role, invited_by=bob)
    for user, name in ((ada, "ada"), (bob, "bob"), (ada, "ada"), (eve, "eve")):
        log(bob, user, text=name)
    for invitation in (left, gone):
        log(bob, invitation, text=invitation.email)
    log(bob, Group(pk=ada.pk), text="Group")
    gone.delete()
    closed, deleted = f"deleted:{ada.pk}", f"deleted:{eve.pk}"
    eve.delete()
    User.objects.filter(pk=ada.pk).update(username=closed)

    migration.forget_in_log(apps, None)

    told = list(LogEntry.objects.order_by("pk").values_list("object_repr", flat=True))
    assert told == [closed, "bob", closed, deleted, "bob@example.com", "deleted", "Group"]
