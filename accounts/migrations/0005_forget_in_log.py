from django.conf import settings
from django.db import migrations
from django.db.models import CharField, F, Value
from django.db.models.functions import Concat

AT_ONCE = 1000
"""The most entries that are read, and written in one statement."""


def forget_in_log(apps, schema_editor):
    """Take names and addresses of accounts that earlier releases deleted out of the log."""
    users = apps.get_model(settings.AUTH_USER_MODEL).objects
    account = Concat(Value("deleted:"), F("object_id"), output_field=CharField())
    forget(apps, "auth.User", users.exclude(username__startswith="deleted:"), called=account)
    # They went with their accounts, or were withdrawn: whose the addresses were is not known now.
    invitations = apps.get_model("accounts", "Invitation").objects
    forget(apps, "accounts.Invitation", invitations, called=Value("deleted"))


def forget(apps, label, left, *, called):
    """Rename the rows of a model in the log's entries, except for those that are left."""
    app_label, name = label.lower().split(".")
    kinds = apps.get_model("contenttypes", "ContentType").objects
    kind = kinds.filter(app_label=app_label, model=name).first()
    entries = apps.get_model("admin", "LogEntry").objects
    of_kind = entries.filter(content_type=kind).order_by("pk").values_list("pk", "object_id")
    last = 0
    while kind and (batch := list(of_kind.filter(pk__gt=last)[:AT_ONCE])):
        last = batch[-1][0]
        kept = left.filter(pk__in={row for _, row in batch}).values_list("pk", flat=True)
        kept = {str(pk) for pk in kept}
        gone = [pk for pk, row in batch if row not in kept]
        entries.filter(pk__in=gone).update(object_repr=called)


class Migration(migrations.Migration):
    # Each batch for itself: the log may be long.
    atomic = False
    dependencies = [
        ("accounts", "0004_invitation_names"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [migrations.RunPython(forget_in_log, migrations.RunPython.noop)]
