from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("lab", "0001_initial")]
    operations = [
        migrations.AddField(
            "labsale", "version", models.PositiveIntegerField(default=0, db_default=0)
        )
    ]
