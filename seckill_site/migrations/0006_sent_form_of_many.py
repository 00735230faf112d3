from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("seckill_site", "0005_shop_settings")]
    operations = [
        migrations.AlterField(
            model_name="sentform", name="made", field=models.CharField(max_length=2000)
        ),
    ]
