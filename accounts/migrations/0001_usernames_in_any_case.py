from django.db import migrations
from django.db.models import Count
from django.db.models.functions import Lower

INDEX = "account_username_any_case"


class SameNames(Exception):
    """Accounts have names that differ only in case. Rename all but one of each, then migrate again."""


def make_names_unique(apps, schema_editor):
    """Let SQLite compare names as MariaDB's collation does: it would take ada and Ada for two."""
    users = apps.get_model("auth", "User").objects.using(schema_editor.connection.alias)
    counted = users.annotate(name=Lower("username")).values("name").annotate(count=Count("pk"))
    same = [it["name"] for it in counted.filter(count__gt=1).order_by("name")[:20]]
    if same:
        raise SameNames(f"{SameNames.__doc__} They are: {', '.join(same)}")
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute(f"CREATE UNIQUE INDEX {INDEX} ON auth_user (username COLLATE NOCASE)")


def let_names_differ(apps, schema_editor):
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute(f"DROP INDEX {INDEX}")


class Migration(migrations.Migration):
    initial = True
    # The newest of auth: SQLite copies a changed table without the indexes that Django knows nothing of.
    dependencies = [("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunPython(make_names_unique, let_names_differ)]
