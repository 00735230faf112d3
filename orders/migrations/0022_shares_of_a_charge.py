from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0021_position")]
    operations = [
        migrations.AddField(
            "payment",
            "charge",
            models.ForeignKey(
                "orders.payment",
                models.DO_NOTHING,
                null=True,
                related_name="+",
                db_constraint=False,
                verbose_name="charge",
            ),
        ),
        migrations.AddField(
            "payment",
            "total_cents",
            models.PositiveIntegerField(null=True, verbose_name="charge's total in cents"),
        ),
        migrations.AddField("sandboxtrade", "refunds", models.JSONField(null=True)),
    ]
