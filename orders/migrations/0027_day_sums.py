"""Sums by sale and day, for the reports."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0025_large_tables")]
    operations = [
        migrations.CreateModel(
            name="DaySum",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("what", models.CharField(max_length=16)),
                ("count", models.PositiveIntegerField()),
                ("cents", models.BigIntegerField()),
                ("event_id", models.BigIntegerField(db_index=True)),
                (
                    "seckill_voucher",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="vouchers.seckillvoucher",
                    ),
                ),
            ],
            options={
                "verbose_name": "sums of a day",
                "verbose_name_plural": "sums of a day",
                "default_permissions": (),
                "indexes": [models.Index(fields=["day"], name="day_sum_by_day")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("seckill_voucher", "day", "what"), name="day_sum_once"
                    )
                ],
            },
        ),
    ]
