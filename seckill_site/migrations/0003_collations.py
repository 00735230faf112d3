from copy import copy

from django.db import migrations
from django.db.models import CharField, Count
from django.db.models.functions import Cast, Collate

from seckill_site.mysql.collations import COLLATIONS


class SameNames(Exception):
    """Names would be the same in this release. Rename all but one of each, then migrate again."""


def collate_names(apps, schema_editor):
    """Let MariaDB tell names apart by a collation of ours, not by the server's."""
    if schema_editor.connection.vendor != "mysql":
        return
    names = [(apps.get_model(model), name, it) for (model, name), it in COLLATIONS.items()]
    same = [line for it in names for line in find_same_names(*it)]
    if same:
        raise SameNames(f"{SameNames.__doc__} They are: {'; '.join(same)}")
    for model, name, collation in names:
        field = model._meta.get_field(name)
        collated = copy(field)
        collated.db_collation = collation
        schema_editor.alter_field(model, field, collated)


def find_same_names(model, name, collation):
    if not model._meta.get_field(name).unique:
        return
    # The cast: a database that is not utf8mb4 has no such collation.
    collated = model.objects.annotate(collated=Collate(Cast(name, CharField()), collation))
    counted = collated.values("collated").annotate(count=Count("pk")).filter(count__gt=1)
    for same in counted.order_by("collated").values_list("collated", flat=True)[:20]:
        spellings = collated.filter(collated=same).order_by("pk").values_list(name, flat=True)
        yield f"{model._meta.label}.{name}: {', '.join(spellings)}"


class Migration(migrations.Migration):
    # MariaDB ends a transaction with each such statement.
    atomic = False
    # Whatever changes one of these fields later has to keep its collation: seckill.E024 finds it.
    dependencies = [
        ("seckill_site", "0002_stale_fact"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("accounts", "0004_invitation_names"),
        ("vouchers", "0014_words"),
        ("api", "0001_tokens_and_webhooks"),
    ]
    operations = [migrations.RunPython(collate_names, migrations.RunPython.noop)]
