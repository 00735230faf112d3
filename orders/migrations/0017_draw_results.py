from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0016_waiting_price")]
    operations = [
        migrations.AlterField(
            "notice",
            "kind",
            models.CharField(
                choices=[
                    ("start", "the start"),
                    ("back", "a voucher that is available again"),
                    ("result", "the result of a draw"),
                ],
                max_length=8,
            ),
        ),
    ]
