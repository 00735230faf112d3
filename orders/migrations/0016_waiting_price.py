from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("orders", "0015_payment_third_states")]

    operations = [
        migrations.AddField(
            "waitingentry",
            "price_cents",
            models.PositiveIntegerField(
                editable=False, null=True, verbose_name="price when joining, in cents"
            ),
        ),
    ]
