from django.db import migrations, models

TOPICS = [
    ("order.paid", "order paid"),
    ("order.used", "voucher used"),
    ("order.unused", "use undone"),
    ("order.refunded", "order refunded"),
    ("order.cancelled", "order cancelled"),
    ("order.expired", "order expired"),
]


class Migration(migrations.Migration):
    dependencies = [("api", "0001_tokens_and_webhooks")]
    operations = [
        migrations.AddField("apitoken", "merchant_ids", models.JSONField(null=True)),
        migrations.AlterField(
            "webhookdelivery",
            "topic",
            models.CharField(choices=TOPICS, max_length=32, verbose_name="event"),
        ),
    ]
