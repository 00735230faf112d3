from django.db import migrations, models

import seckill_site.clocks.database


class Migration(migrations.Migration):

    dependencies = [
        ("seckill_site", "0003_collations"),
    ]

    operations = [
        migrations.CreateModel(
            name="SentForm",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("made", models.CharField(max_length=200)),
                ("sent_at", models.DateTimeField(db_index=True, default=seckill_site.clocks.database.database_now)),
            ],
        ),
    ]
