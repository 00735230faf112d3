from importlib import import_module

from django.db import migrations

make_roles = import_module("orders.migrations.0002_roles").make_roles_with_permissions


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0007_notices'),
        ('vouchers', '0012_merchants'),
    ]

    operations = [migrations.RunPython(make_roles, migrations.RunPython.noop)]
