from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vouchers", "0019_refund_unused")]
    operations = [
        migrations.AddField(
            "seckillvoucher",
            "chain_head",
            models.CharField(
                blank=True, db_default="", default="", editable=False, max_length=64
            ),
        ),
        migrations.AddField(
            "seckillvoucher",
            "chain_links",
            models.PositiveIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            "seckillvoucher",
            "chain_entries",
            models.PositiveIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.CreateModel(
            name="ChainLink",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("last", models.PositiveIntegerField()),
                ("mark", models.CharField(blank=True, max_length=100)),
                ("head", models.CharField(max_length=64)),
                (
                    "seckill_voucher",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="links",
                        to="vouchers.seckillvoucher",
                    ),
                ),
            ],
            options={
                "verbose_name": "fingerprint",
                "verbose_name_plural": "fingerprints",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        fields=["seckill_voucher", "last"], name="chain_by_sale_last"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("seckill_voucher", "number"), name="chain_one_link_per_number"
                    )
                ],
            },
        ),
    ]
