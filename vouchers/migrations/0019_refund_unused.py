from django.db import migrations, models

ABOUT = (
    "Whether a paid voucher that was not used is refunded by itself after its last day. "
    "The counter then makes no exceptions."
)


class Migration(migrations.Migration):
    dependencies = [("vouchers", "0018_merchant_staff")]
    operations = [
        # Without the default: sales that there are already keep their money.
        migrations.AddField(
            "seckillvoucher",
            "refund_unused",
            models.BooleanField(
                blank=True, help_text=ABOUT, null=True, verbose_name="refund unused vouchers"
            ),
        ),
        migrations.AlterField(
            "seckillvoucher",
            "refund_unused",
            models.BooleanField(
                blank=True,
                default=True,
                help_text=ABOUT,
                null=True,
                verbose_name="refund unused vouchers",
            ),
        ),
        migrations.AddField(
            "seckillvoucher",
            "reminded_for",
            models.DateField(
                editable=False,
                help_text="The last day of which its buyers were reminded.",
                null=True,
            ),
        ),
    ]
