import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

INDEX = "account_user_email"


def make_index(apps, schema_editor):
    """Let a sign-in by an address find it without reading all users."""
    schema_editor.execute(f"CREATE INDEX {INDEX} ON auth_user (email)")


def drop_index(apps, schema_editor):
    on = " ON auth_user" if schema_editor.connection.vendor == "mysql" else ""
    schema_editor.execute(f"DROP INDEX {INDEX}{on}")


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_usernames_in_any_case"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="Phone",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="phone",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
                ("number", models.CharField(max_length=16, verbose_name="phone number")),
            ],
            options={
                "verbose_name": "phone number",
                "verbose_name_plural": "phone numbers",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("number",), name="phone_of_one_account")
                ],
            },
        ),
        migrations.CreateModel(
            name="Reader",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="reader",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
                ("language", models.CharField(max_length=10, verbose_name="language")),
            ],
            options={
                "verbose_name": "reader",
                "verbose_name_plural": "readers",
                "default_permissions": (),
            },
        ),
        # MariaDB ends a transaction with each such statement.
        migrations.RunPython(make_index, drop_index, atomic=False),
    ]
