from django.db import migrations, models

ONE_ROW = models.CheckConstraint(condition=models.Q(id=1), name="shop_settings_one_row")


class Migration(migrations.Migration):

    dependencies = [("seckill_site", "0004_sent_form")]
    operations = [
        migrations.CreateModel(
            name="ShopSettings",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ("revision", models.CharField(editable=False, max_length=16)),
                ("values", models.JSONField(default=dict, editable=False)),
                ("logo", models.BinaryField(default=b"")),
            ],
            options={"verbose_name": "settings", "verbose_name_plural": "settings", "default_permissions": (), "constraints": [ONE_ROW]},
        ),
    ]
