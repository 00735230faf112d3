from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0022_shares_of_a_charge")]
    operations = [
        migrations.AddField(
            "waitingentry",
            "quantity",
            models.PositiveSmallIntegerField(db_default=1, default=1, verbose_name="quantity"),
        ),
        migrations.AddField(
            "waitingentry",
            "all_or_none",
            models.BooleanField(db_default=False, default=False, verbose_name="all or none"),
        ),
    ]
