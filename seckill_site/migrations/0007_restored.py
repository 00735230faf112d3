from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("seckill_site", "0006_sent_form_of_many")]
    operations = [
        migrations.AddField("installation", name, models.DateTimeField(null=True))
        for name in ("restored_at", "restored_point", "repaired_at", "backed_up_at")
    ]
