"""Usernames are unique whatever the case of their letters."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import IntegrityError, connection

from accounts.usernames import username_is_taken

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

migration = import_module("accounts.migrations.0001_usernames_in_any_case")


def test_database_refuses_a_name_in_another_case():
    User.objects.create_user("ada")

    with pytest.raises(IntegrityError):
        User.objects.bulk_create([User(username="ADA")])


@pytest.mark.parametrize(("name", "other"), [("ada", "ADA"), ("Ärger", "ärger"), ("小明", "小明")])
def test_name_is_taken_in_any_case(name, other):
    User.objects.create_user(name)

    assert username_is_taken(other)
    assert not username_is_taken(name + "x")


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="MariaDB's collation compares names so")
def test_migration_names_what_stands_in_its_way():
    with connection.schema_editor() as editor:
        migration.let_names_differ(apps, editor)
    User.objects.bulk_create([User(username="ada"), User(username="Ada"), User(username="bob")])

    with connection.schema_editor() as editor:
        with pytest.raises(migration.SameNames, match=r"They are: ada$"):
            migration.make_names_unique(apps, editor)
        User.objects.filter(username="Ada").delete()
        migration.make_names_unique(apps, editor)
