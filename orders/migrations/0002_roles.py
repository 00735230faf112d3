"""The roles, on every installation. Whoever adds a permission to one ends its migration the same way."""

from django.contrib.auth.management import create_permissions
from django.db import migrations

from orders.roles import SHOP_APPS, make_roles


def make_roles_with_permissions(apps, schema_editor):
    # Django makes permissions after all migrations, which here is too late: on a new database there are
    # none yet, and an upgrade lacks the new ones.
    for label in SHOP_APPS:
        app_config = apps.get_app_config(label)
        app_config.models_module = True
        create_permissions(app_config, apps=apps, verbosity=0, using=schema_editor.connection.alias)
        app_config.models_module = None
    make_roles(apps=apps)


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0001_initial'),
        ('locks', '0001_initial'),
        ('auth', '0012_alter_user_first_name_max_length'),
        ('contenttypes', '0002_remove_content_type_name'),
    ]

    operations = [migrations.RunPython(make_roles_with_permissions, migrations.RunPython.noop)]
