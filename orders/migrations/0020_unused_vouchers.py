from django.db import migrations, models

CODES = [
    ("retried", "retried"),
    ("extended", "The buyer has taken more time to pay."),
    ("lapsed", "The voucher was not used by its last day."),
    ("late_payment", "The payment arrived too late and is being refunded."),
    ("wrong_amount", "The payment was not the price of this order and is being refunded."),
]
KINDS = [
    ("start", "the start"),
    ("back", "a voucher that is available again"),
    ("result", "the result of a draw"),
    ("last_day", "the last day of a voucher"),
]


class Migration(migrations.Migration):
    dependencies = [("orders", "0019_order_refusals"), ("vouchers", "0019_refund_unused")]
    operations = [
        # The new index first: a foreign key needs one of them.
        migrations.AddIndex(
            "voucherorder",
            models.Index(
                fields=["seckill_voucher", "live", "status"], name="order_by_sale_live_status"
            ),
        ),
        migrations.RemoveIndex("voucherorder", "order_by_sale_live"),
        migrations.AddIndex(
            "payment",
            models.Index(fields=["status", "provider", "ask_at"], name="payment_by_provider"),
        ),
        migrations.AlterField("notice", "kind", models.CharField(choices=KINDS, max_length=8)),
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
