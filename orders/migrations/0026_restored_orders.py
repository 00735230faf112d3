from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("orders", "0024_retention")]
    operations = [
        migrations.CreateModel(
            name="RestoredOrder",
            fields=[
                ("order_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("sale_id", models.BigIntegerField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        max_length=8,
                        choices=[
                            ("written", "written again from the ledger"),
                            ("lost", "lost: its receipt says so"),
                            ("paid", "paid without a row: for a human"),
                        ],
                    ),
                ),
                ("detail", models.CharField(max_length=200)),
                ("noted_at", models.DateTimeField()),
            ],
            options={"default_permissions": ()},
        ),
    ]
