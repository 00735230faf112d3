from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0020_unused_vouchers")]
    operations = [
        migrations.AddField(
            "voucherorder", "position", models.PositiveIntegerField(editable=False, null=True)
        ),
    ]
