from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("lab", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="labsale",
            name="version",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
