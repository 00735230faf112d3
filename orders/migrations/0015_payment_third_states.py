from django.db import migrations, models
from django.db.models import F
from django.db.models.functions import Coalesce


def know_what_went_back(apps, schema_editor):
    payments = apps.get_model("orders", "Payment").objects
    whole = Coalesce(F("received_cents"), F("amount_cents"))
    payments.filter(status="refunded").update(refunded_cents=whole)


class Migration(migrations.Migration):

    dependencies = [
        ("orders", "0014_payment_links"),
    ]

    operations = [
        migrations.AddField(
            model_name="payment",
            name="refund_round",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="payment",
            name="refunded_cents",
            field=models.PositiveIntegerField(
                db_default=0, default=0, verbose_name="gone back, in cents"
            ),
        ),
        migrations.AlterField(
            model_name="payment",
            name="status",
            field=models.CharField(
                choices=[
                    ("open", "open"),
                    ("paid", "paid"),
                    ("refunding", "refunding"),
                    ("refunded", "refunded"),
                    ("closed", "closed"),
                    ("refused", "refused by the provider"),
                    ("partly_refunded", "partly refunded"),
                    ("disputed", "disputed"),
                    ("refund_failed", "refund failed"),
                ],
                default="open",
                max_length=16,
                verbose_name="status",
            ),
        ),
        migrations.RunPython(know_what_went_back, migrations.RunPython.noop),
    ]
