from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("seckill_site", "0001_installation"),
    ]

    operations = [
        migrations.CreateModel(
            name="StaleFact",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("due_at", models.DateTimeField(db_index=True)),
            ],
        ),
    ]
