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
        migrations.AlterField(
            "rulerefusal",
            "rule",
            models.CharField(
                choices=[
                    ("group", "not in the group"),
                    ("account_age", "account too new"),
                    ("first_order", "not the first order"),
                    ("contact", "no verified contact"),
                    ("code", "no invitation code"),
                    ("unpaid_orders", "too many unpaid orders"),
                    ("cancellations", "too many cancellations"),
                ],
                max_length=16,
            ),
        ),
    ]
