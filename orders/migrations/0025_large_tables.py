"""Indexes of the lists, in which rows are in the order of ids."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0026_restored_orders")]
    operations = [
        migrations.AddIndex(
            "voucherorder", models.Index(fields=("status", "id"), name="order_by_status_id")
        ),
        migrations.AddIndex(
            "voucherorder", models.Index(fields=("reason", "id"), name="order_by_reason_id")
        ),
        migrations.AddIndex(
            "payment", models.Index(fields=("status", "id"), name="payment_by_status_id")
        ),
        migrations.AddIndex(
            "payment", models.Index(fields=("provider", "id"), name="payment_by_provider_id")
        ),
        migrations.AddIndex(
            "payment", models.Index(fields=("problem",), name="payment_by_problem")
        ),
    ]
