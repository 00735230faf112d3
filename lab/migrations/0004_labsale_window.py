import datetime as dt

from django.db import migrations, models

LONG_AGO, NEVER = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2000, 9000))


class Migration(migrations.Migration):
    dependencies = [("lab", "0003_lablock")]
    operations = [
        migrations.AddField(
            "labsale", name, models.DateTimeField(default=moment, db_default=moment)
        )
        for name, moment in (("begins_at", LONG_AGO), ("ends_at", NEVER))
    ]
