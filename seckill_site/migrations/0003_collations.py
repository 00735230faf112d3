from copy import copy

from django.db import IntegrityError, migrations
from django.db.models import CharField, Count
from django.db.models.functions import Cast, Collate

from seckill_site.mysql.collations import COLLATIONS


class SameNames(Exception):
    """Names would be the same in this release. Rename all but one of each, then migrate again."""


def collate_names(apps, schema_editor):
    """Let MariaDB tell names apart by a collation of ours, not by the server's."""
    if schema_editor.connection.vendor != "mysql":
        return
    for (label, name), collation in COLLATIONS.items():
        model = apps.get_model(label)
        field = model._meta.get_field(name)
        collated = copy(field)
        collated.db_collation = collation
        try:
            schema_editor.alter_field(model, field, collated)
        except IntegrityError as error:
            same = find_same_names(model, field, collation)
            text = f"{SameNames.__doc__} They are in {label}.{name}: {'; '.join(same)}"
            raise SameNames(text) from error


def find_same_names(model, field, collation):
    # The cast: a column that is not utf8mb4 has no such collation.
    text = Cast(field.name, CharField(max_length=field.max_length))
    collated = model.objects.annotate(collated=Collate(text, collation))
    counted = collated.values("collated").annotate(count=Count("pk")).filter(count__gt=1)
    for same in counted.order_by("collated").values_list("collated", flat=True)[:20]:
        spellings = collated.filter(collated=same).order_by("pk").values_list(field.name, flat=True)
        yield ", ".join(spellings)


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
