from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vouchers", "0020_chain")]
    operations = [
        migrations.AddField(
            "seckillvoucher",
            "ledger_removed_at",
            models.DateTimeField(
                editable=False,
                help_text="When this sale's ledger left Redis; null: it has not.",
                null=True,
            ),
        ),
        migrations.AddField(
            "seckillvoucher",
            "ledger_back_at",
            models.DateTimeField(
                editable=False,
                help_text="When staff brought a removed ledger back.",
                null=True,
            ),
        ),
    ]
