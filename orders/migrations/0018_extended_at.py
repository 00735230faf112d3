from django.db import migrations, models

CODES = [
    ("retried", "retried"),
    ("extended", "The buyer has taken more time to pay."),
    ("late_payment", "The payment arrived too late and is being refunded."),
    ("wrong_amount", "The payment was not the price of this order and is being refunded."),
]


class Migration(migrations.Migration):
    dependencies = [("orders", "0017_draw_results")]
    operations = [
        migrations.AddField(
            "voucherorder", "extended_at", models.DateTimeField(editable=False, null=True)
        ),
        migrations.AlterField(
            "orderevent",
            "code",
            models.CharField(
                blank=True,
                choices=CODES,
                db_default="",
                default="",
                max_length=32,
                verbose_name="code",
            ),
        ),
    ]
