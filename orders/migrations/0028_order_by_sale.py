"""An index for the orders of a sale, newest first: else MariaDB may walk all newer orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0027_day_sums")]
    operations = [
        migrations.AddIndex(
            "voucherorder", models.Index(fields=("seckill_voucher", "id"), name="order_by_sale_id")
        ),
    ]
