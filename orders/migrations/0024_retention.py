from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orders", "0023_waiting_quantity"),
        ("vouchers", "0021_ledger_removed"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.AddField("orderjob", "sums", models.JSONField(editable=False, null=True)),
        migrations.AddIndex(
            "notice", models.Index(fields=["live", "told_at"], name="notice_by_live_told")
        ),
    ]
