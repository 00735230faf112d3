from django.db import migrations, models

MAILED_AT = models.DateTimeField(editable=False, null=True, verbose_name="mailed at")


class Migration(migrations.Migration):

    dependencies = [("accounts", "0006_agreements")]
    operations = [migrations.AddField("invitation", "mailed_at", MAILED_AT)]
